// A NaN comes into the memory of one of several processes, as from a fault of its machine.
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/bfloat16.h"
#include "base/random.h"
#include "checkpoint/checkpoint_reader.h"
#include "cli/process_runs.h"
#include "support/names_in.h"
#include "support/rounds.h"
#include "tensor/tensor.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using testing::Arguments;
using ::testing::HasSubstr;
using testing::joined;

/// The memory of another process, which this one or its child has started.
class MemoryOfProcess {
 public:
  explicit MemoryOfProcess(pid_t process)
      : process_(process), file_(::open(fmt::format("/proc/{}/mem", process).c_str(), O_RDWR)) {}
  ~MemoryOfProcess() {
    if (file_ >= 0) ::close(file_);
  }
  MemoryOfProcess(const MemoryOfProcess&) = delete;
  MemoryOfProcess& operator=(const MemoryOfProcess&) = delete;

  bool opened() const { return file_ >= 0; }
  /// Where it has these bytes, in memory that it writes to. Mappings as large as those of the
  /// sanitizers are left out.
  std::vector<off_t> places_of(const std::string& bytes) const {
    std::vector<off_t> places;
    std::ifstream maps(fmt::format("/proc/{}/maps", process_));
    for (std::string line; std::getline(maps, line);) {
      std::istringstream words(line);
      off_t begin = 0, end = 0;
      char dash = 0;
      std::string rights;
      if (!(words >> std::hex >> begin >> dash >> end >> rights)) continue;
      if (!rights.starts_with("rw") || end - begin > kLargest) continue;
      std::string memory(static_cast<size_t>(end - begin), '\0');
      const ssize_t read = ::pread(file_, memory.data(), memory.size(), begin);
      if (read <= 0) continue;
      memory.resize(static_cast<size_t>(read));
      for (size_t at = memory.find(bytes); at != std::string::npos;
           at = memory.find(bytes, at + 1)) {
        places.push_back(begin + static_cast<off_t>(at));
      }
    }
    return places;
  }
  void write(off_t place, const std::string& bytes) const {
    [[maybe_unused]] const ssize_t written = ::pwrite(file_, bytes.data(), bytes.size(), place);
  }

 private:
  static constexpr off_t kLargest = off_t{1} << 30;
  pid_t process_;
  int file_;
};

std::string bytes_of(std::span<const BFloat16> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

class PlantedNan : public testing::ProcessRuns {
 protected:
  /// The first numbers of a weight of a checkpoint, as the programs of a run in bf16 have them.
  static std::string weight_of(const fs::path& checkpoint, const std::string& name) {
    const CheckpointReader reader(checkpoint);
    const Tensor weight(reader.find("parameters", name)->shape, DType::f32);
    reader.load({"parameters", name, weight});
    std::vector<BFloat16> first;
    for (const float value : weight.values<float>().first(64)) first.emplace_back(value);
    return bytes_of(first);
  }
  static std::string parameters_of(const fs::path& checkpoint) {
    std::string bytes;
    for (const std::string& file : testing::names_in(checkpoint)) {
      if (!file.starts_with("parameters")) continue;
      const std::string all = read_file(checkpoint / file);
      uint64_t header = 0;  // it says the step
      std::memcpy(&header, all.data(), sizeof(header));
      bytes += all.substr(sizeof(header) + header);
    }
    return bytes;
  }
};

/// At any moment of a training. TESSERA_ROUNDS=100 in the environment does so a hundred times. No
/// weight changes here but by the NaN, so all checkpoints must have the same.
TEST_F(PlantedNan, IsNamedWithItsRankAndTheCheckpointsAreWhole) {
  const std::string weight = "layers.0.attention.query";
  const Arguments keys =
      joined(joined(joined(set("train.steps", "100000"), set("train.stop_after", "100000")),
                    joined(joined(set("checkpoint.every", "5"), set("checkpoint.keep", "100000")),
                           set("train.precision", "\"bf16\""))),
             joined(joined(set("train.global_batch", "6"), set("optimizer.learning_rate", "1e-30")),
                    set("optimizer.minimum_learning_rate", "1e-31")));
  const auto rounds = static_cast<uint64_t>(testing::rounds(2));
  const CounterRandom random(18, "moments");
  const std::vector<BFloat16> nan{BFloat16(NAN)};
  for (uint64_t round = 0; round < rounds; ++round) {
    const uint64_t rank = random.bits(2 * round) % 3;
    const std::string name = fmt::format("round-{}", round);
    SCOPED_TRACE(fmt::format("{}: rank {}", name, rank));
    const auto started = start(3, training(name, keys));
    const fs::path first = checkpoint(name, 5);
    await(first);
    ASSERT_TRUE(path_exists(first)) << started->output();
    const std::string parameters = parameters_of(first);
    const std::string planted = weight_of(first, weight);
    const std::vector<pid_t> ranks = processes_of(*started);
    ASSERT_GE(ranks.size(), 3U) << started->output();
    const MemoryOfProcess memory(ranks[ranks.size() - 3 + rank]);
    if (!memory.opened()) GTEST_SKIP() << "the system does not let a test write to its children";
    const std::vector<off_t> places = memory.places_of(planted);
    ASSERT_FALSE(places.empty()) << started->output();
    std::this_thread::sleep_for(std::chrono::microseconds(random.bits(2 * round + 1) % 200000));
    // An update writes all weights anew, so it may need more than one.
    while (started->running()) {
      for (const off_t place : places) memory.write(place, bytes_of(nan));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_NE(started->wait(), 0);
    EXPECT_THAT(started->output(), AllOf(HasSubstr(fmt::format("on rank {} (", rank)),
                                         HasSubstr("layers.0.attention."),
                                         HasSubstr("Nothing of this step was kept")));
    const Result verified = run({"checkpoint", "verify", (folder_ / name).string()});
    EXPECT_EQ(verified.status, 0) << verified.output;
    for (const std::string& step : testing::names_in(folder_ / name / "checkpoints")) {
      EXPECT_TRUE(parameters_of(folder_ / name / "checkpoints" / step) == parameters) << step;
    }
    fs::remove_all(folder_ / name);
  }
}

}  // namespace
}  // namespace tessera
