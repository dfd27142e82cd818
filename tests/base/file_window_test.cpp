#include "base/file_window.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

RC_GTEST_PROP(FileWindow, GivesTheValuesOfAnyPlaces, ()) {
  const TemporaryFolder folder;
  std::string bytes;
  for (int i = 0; i < 20'000; ++i) bytes += static_cast<char>(i * 7 + i / 251);
  write_file(folder / "file", bytes);
  const ReadFile file(folder / "file");
  FileWindow window(file);
  const auto offsets = *rc::gen::container<std::vector<int64_t>>(
      rc::gen::inRange<int64_t>(0, static_cast<int64_t>(bytes.size()) - 8));
  for (const int64_t offset : offsets) {
    std::array<char, 8> expected{};
    std::copy_n(bytes.data() + offset, 8, expected.data());
    RC_ASSERT((window.load<std::array<char, 8>>(offset) == expected));
    RC_ASSERT(window.load<char>(offset) == expected[0]);
  }
}

TEST(FileWindow, ReadsAcrossPagesAndToTheEnd) {
  const TemporaryFolder folder;
  std::string bytes(8200, 'a');
  bytes.replace(4094, 4, "bcde");
  bytes.replace(8196, 4, "wxyz");
  write_file(folder / "file", bytes);
  const ReadFile file(folder / "file");
  FileWindow window(file);
  using Four = std::array<char, 4>;
  EXPECT_EQ(window.load<Four>(4094), (Four{'b', 'c', 'd', 'e'}));
  EXPECT_EQ(window.load<Four>(8196), (Four{'w', 'x', 'y', 'z'}));
  EXPECT_THAT(error_of([&] { window.load<Four>(8197); }), HasSubstr("ends at byte 8200"));
  EXPECT_EQ(window.load<Four>(8196), (Four{'w', 'x', 'y', 'z'})) << "after an error too";
}

}  // namespace
}  // namespace tessera
