#include "base/control_groups.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/usable_cores.h"
#include "base/usable_memory.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

constexpr int64_t kMebi = int64_t{1} << 20;

/// A folder with the files by which a system says what a process may use.
class ControlGroups : public ::testing::Test {
 protected:
  /// `groups` is /proc/self/cgroup. The mounts are some of /proc/self/mountinfo.
  void process(const std::string& groups, const std::string& mounts) const {
    root_.write("proc/self/cgroup", groups);
    root_.write("proc/self/mountinfo",
                "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n" + mounts);
    root_.write("proc/meminfo", "MemTotal:  4096000 kB\nMemAvailable:  1024000 kB\n");
  }
  void write(const std::string& name, const std::string& text) const {
    root_.write("sys/fs/cgroup/" + name, text + "\n");
  }
  /// The bytes and the file, or "".
  std::string memory() const {
    const auto limit = memory_of_control_groups(root_.path());
    return limit ? fmt::format("{} {}", limit->value, limit->file) : "";
  }
  std::string cores() const {
    const auto limit = cores_of_control_groups(root_.path());
    return limit ? fmt::format("{} {}", limit->value, limit->file) : "";
  }

  const std::string second_ = "30 22 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n";
  const std::string first_ =
      "31 22 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "32 22 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
  TemporaryFolder root_;
};

TEST_F(ControlGroups, OfVersion2TheLowestLimitAroundAProcessHolds) {
  process("0::/jobs/7/step\n", second_);
  EXPECT_EQ(memory() + cores(), "") << "no group says anything";
  write("jobs/7/step/memory.max", "max");
  write("jobs/7/step/cpu.max", "max 100000");
  EXPECT_EQ(memory() + cores(), "");
  write("jobs/7/memory.max", "3000");
  write("jobs/memory.max", "2000");
  write("memory.max", "4000");
  write("jobs/8/memory.max", "1");  // another job's
  EXPECT_EQ(memory(), "2000 /sys/fs/cgroup/jobs/memory.max");
  write("jobs/7/step/memory.high", "1500");
  EXPECT_EQ(memory(), "1500 /sys/fs/cgroup/jobs/7/step/memory.high");
  write("jobs/7/step/cpu.max", "350000 100000");
  write("jobs/cpu.max", "50000 20000");
  EXPECT_EQ(cores(), "2.5 /sys/fs/cgroup/jobs/cpu.max");
}

/// Of what groups have, files that the system may drop are free.
TEST_F(ControlGroups, LeaveWhatTheirProcessesDoNotHave) {
  process("0::/jobs/7\n", second_);
  EXPECT_EQ(free_memory_of_control_groups(root_.path()), std::nullopt);
  EXPECT_EQ(available_memory(root_.path()), 1000 * kMebi);
  write("jobs/7/memory.max", fmt::format("{}", 900 * kMebi));
  write("jobs/memory.max", fmt::format("{}", 950 * kMebi));
  EXPECT_EQ(available_memory(root_.path()), 900 * kMebi);
  write("jobs/memory.current", fmt::format("{}", 300 * kMebi));
  write("jobs/memory.stat",
        fmt::format("anon 1\ninactive_file {}\nactive_file {}", 30 * kMebi, 20 * kMebi));
  EXPECT_EQ(available_memory(root_.path()), 700 * kMebi);
  write("jobs/7/memory.current", fmt::format("{}", 2000 * kMebi));
  EXPECT_EQ(available_memory(root_.path()), 0) << "beyond the limit";
  process("4:memory:/box\n", first_);
  write("memory/box/memory.limit_in_bytes", fmt::format("{}", 500 * kMebi));
  write("memory/box/memory.usage_in_bytes", fmt::format("{}", 200 * kMebi));
  write("memory/box/memory.stat", fmt::format("total_inactive_file {}", 50 * kMebi));
  EXPECT_EQ(available_memory(root_.path()), 350 * kMebi);
}

TEST_F(ControlGroups, OfVersion1EachControllerHasItsOwn) {
  process("4:memory:/box\n2:cpu,cpuacct:/box/inner\n1:name=systemd:/else\n", first_);
  EXPECT_EQ(memory() + cores(), "");
  write("memory/box/memory.limit_in_bytes", "9223372036854771712");  // no limit
  write("cpu,cpuacct/box/inner/cpu.cfs_quota_us", "-1");
  write("cpu,cpuacct/box/inner/cpu.cfs_period_us", "100000");
  EXPECT_EQ(memory(), "9223372036854771712 /sys/fs/cgroup/memory/box/memory.limit_in_bytes");
  EXPECT_EQ(cores(), "");
  write("memory/box/memory.stat", "cache 1\nhierarchical_memory_limit 7000\ntotal_rss 3");
  EXPECT_EQ(memory(), "7000 /sys/fs/cgroup/memory/box/memory.stat");
  write("memory/memory.limit_in_bytes", "6000");
  EXPECT_EQ(memory(), "6000 /sys/fs/cgroup/memory/memory.limit_in_bytes");
  write("cpu,cpuacct/box/cpu.cfs_quota_us", "150000");
  write("cpu,cpuacct/box/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cores(), "1.5 /sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us");
}

TEST_F(ControlGroups, OfBothVersionsBothHold) {
  process("4:memory:/box\n2:cpu,cpuacct:/box\n0::/user\n",
          first_ + "33 22 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  write("memory/box/memory.limit_in_bytes", "5000");
  write("unified/user/memory.max", "4000");
  write("cpu,cpuacct/box/cpu.cfs_quota_us", "300000");
  write("cpu,cpuacct/box/cpu.cfs_period_us", "100000");
  write("unified/cpu.max", "400000 100000");
  EXPECT_EQ(memory(), "4000 /sys/fs/cgroup/unified/user/memory.max");
  EXPECT_EQ(cores(), "3 /sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us");
}

/// A container sees its own group as the top of the tree, and may be told its name outside.
TEST_F(ControlGroups, AContainersGroupIsTheOneThatIsMounted) {
  write("memory.max", "5000");
  write("inner/memory.max", "4000");
  for (const auto& [group, mounted, expected] :
       {std::tuple("/docker/ab", "/docker/ab", "5000"),
        {"/docker/ab/inner", "/docker/ab", "4000"},
        {"/docker/abc", "/docker/ab", "5000"},  // another part of the tree
        {"/../other", "/", "5000"},
        {"/", "/../..", "5000"}}) {
    process(fmt::format("0::{}\n", group),
            fmt::format("30 22 0:26 {} /sys/fs/cgroup rw - cgroup2 none rw\n", mounted));
    EXPECT_EQ(memory().substr(0, 4), expected) << group << " in " << mounted;
  }
}

TEST_F(ControlGroups, WhatIsNoNumberLimitsNothing) {
  process("0::/a b\nnonsense\n", "30 22 0:26 / /sys/fs/cgroup\\040x rw - cgroup2 none rw\nshort\n");
  for (const char* text : {"", "max", "-1x", "99999999999999999999999", "12 kB", "1e3"}) {
    root_.write("sys/fs/cgroup x/a b/memory.max", text);
    EXPECT_EQ(memory(), "") << text;
  }
  for (const char* text : {"", "max", "100000", "0 100000", "1 0", "1 2 3", "-1 100000"}) {
    root_.write("sys/fs/cgroup x/a b/cpu.max", text);
    EXPECT_EQ(cores(), "") << text;
  }
  root_.write("sys/fs/cgroup x/a b/memory.max", "77");
  EXPECT_EQ(memory(), "77 /sys/fs/cgroup x/a b/memory.max");
  const TemporaryFolder nothing;
  EXPECT_FALSE(memory_of_control_groups(nothing.path()));
  EXPECT_FALSE(cores_of_control_groups(nothing.path()));
}

TEST_F(ControlGroups, LimitTheMemoryOfTheMachine) {
  process("0::/job\n", second_);
  EXPECT_EQ(usable_memory(root_.path()).text(), "this machine has 3.9 GiB");
  EXPECT_EQ(usable_memory(root_.path()).bytes, int64_t{4000} * kMebi);
  EXPECT_EQ(available_memory(root_.path()), int64_t{1000} * kMebi);
  write("job/memory.max", std::to_string(5000 * kMebi));
  EXPECT_EQ(usable_memory(root_.path()).limited_by, "");
  write("job/memory.max", std::to_string(512 * kMebi));
  EXPECT_EQ(usable_memory(root_.path()).text(),
            "this process's control group may have 512.0 MiB (/sys/fs/cgroup/job/memory.max)");
  const TemporaryFolder nothing;
  EXPECT_GT(usable_memory(nothing.path()).bytes, 0);
}

TEST_F(ControlGroups, LimitTheCoresOfTheProcess) {
  process("0::/job\n", second_);
  const UsableCores all = usable_cores(root_.path());
  EXPECT_EQ(all.limited_by, "");
  write("job/cpu.max", "100000000 100000");
  EXPECT_EQ(usable_cores(root_.path()).count, all.count);
  write("job/cpu.max", "30000 100000");
  if (all.count == 1) GTEST_SKIP() << "one core";
  EXPECT_EQ(usable_cores(root_.path()).text(), "1 core (/sys/fs/cgroup/job/cpu.max)");
  write("job/cpu.max", "130000 100000");
  EXPECT_EQ(usable_cores(root_.path()).count, 2);
}

}  // namespace
}  // namespace tessera
