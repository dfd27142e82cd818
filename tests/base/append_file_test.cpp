#include "base/append_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_of.h"
#include "support/file_size_limit.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

TEST(AppendFile, GoesOnAtTheEndOfWhatIsThere) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("log", "one\n");
  {
    AppendFile file(path);
    file.append("two\n");
    EXPECT_EQ(read_file(path), "one\ntwo\n") << "others see a piece at once";
  }
  AppendFile(path).append("three\n");
  EXPECT_EQ(read_file(path), "one\ntwo\nthree\n");
}

TEST(AppendFile, APieceThatDoesNotFitLeavesTheFileAsItWas) {
  const TemporaryFolder folder;
  const fs::path path = folder / "log";
  AppendFile file(path);
  file.append("fits\n");
  {
    const FileSizeLimit limit(8);
    EXPECT_THAT(error_of([&] { file.append("does not fit\n"); }), HasSubstr(path.string()));
  }
  EXPECT_EQ(read_file(path), "fits\n");
  file.append("fits again\n");
  EXPECT_EQ(read_file(path), "fits\nfits again\n");
}

TEST(AppendFile, AFolderThatIsNotThereIsNamed) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { AppendFile(folder / "none/log"); }), HasSubstr("none/log"));
}

}  // namespace
}  // namespace tessera
