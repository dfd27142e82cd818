#include "base/cache_sizes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/temporary_folder.h"

namespace tessera {
namespace {

/// Two clusters of two cores, each with a last-level cache; a fifth core is off.
TEST(CacheSizes, LastLevelCachesAreAddedUp) {
  TemporaryFolder folder;
  for (int core = 0; core < 4; ++core) {
    const auto cache = [&](int index, const char* level, const char* type, const char* size,
                           const std::string& shared) {
      const std::string path = fmt::format("cpu{}/cache/index{}/", core, index);
      folder.write(path + "level", level);
      folder.write(path + "type", type);
      folder.write(path + "size", size);
      folder.write(path + "shared_cpu_list", shared);
    };
    const std::string own = std::to_string(core);
    cache(0, "1", "Data", "32K", own);
    cache(1, "1", "Instruction", "64K", own);
    cache(2, "2", "Unified", "1024K", own);
    cache(3, "3", "Unified", "32768K", core < 2 ? "0-1" : "2-3");
  }
  folder.write("cpu4/online", "0");
  folder.write("online", "0-3");
  const CacheSizes sizes = cache_sizes(folder.path());
  EXPECT_EQ(sizes.first_level, 32 << 10);
  EXPECT_EQ(sizes.second_level, 1 << 20);
  EXPECT_EQ(sizes.last_level, 64 << 20);
}

TEST(CacheSizes, AreZeroWhereTheSystemDoesNotTell) {
  TemporaryFolder folder;
  EXPECT_EQ(cache_sizes(folder.path()).second_level, 0);
}

}  // namespace
}  // namespace tessera
