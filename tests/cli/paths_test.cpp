#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "cli/program.h"
#include "support/prepared_data.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Result = testing::ProgramResult;

/// Every command that takes a path, with paths that the system refuses.
class Paths : public ::testing::Test {
 protected:
  Paths() {
    fs::permissions(folder_.path(), fs::perms(0777));
    write_file(folder_ / "text.txt", testing::small_text(20));
    write_file(folder_ / "config.toml", testing::small_config(folder_.path()));
  }

  std::vector<std::vector<std::string>> commands(const std::string& path) const {
    const std::string text = (folder_ / "text.txt").string();
    const std::string config = (folder_ / "config.toml").string();
    const std::string out = (folder_ / "out").string();
    return {{"train", path},
            {"train", config, "--set", "data.directory=" + path},
            {"explain", path},
            {"eval", "--checkpoint", path},
            {"eval", "--checkpoint", out, "--tasks", path},
            {"generate", "--checkpoint", path, "--prompt", "a"},
            {"checkpoint", "inspect", path},
            {"checkpoint", "verify", path},
            {"checkpoint", "import", path, "--output", out},
            {"checkpoint", "export", path, "--output", out},
            {"prepare", "--input", path, "--output", out, "--tokenizer", "bytes"},
            {"prepare", "--input", text, "--output", path, "--tokenizer", "bytes"},
            {"prepare", "--input", text, "--output", out, "--tokenizer", path},
            {"plot", path, "--output", (folder_ / "plot.svg").string()},
            {"trace", "draw", path, "--svg", out + ".svg"},
            {"trace", "summarize", path}};
  }

  void expect_plain_errors(const std::string& path, const std::string& reason) const {
    for (const auto& command : commands(path)) {
      const Result result = testing::run_program(folder_, command);
      EXPECT_EQ(result.status, 1) << command[0] << " " << command[1] << ": " << result.output;
      EXPECT_THAT(result.output, Not(HasSubstr("internal error")));
      EXPECT_THAT(result.output, HasSubstr(path)) << command[0] << " " << command[1];
      EXPECT_THAT(result.output, HasSubstr(reason)) << command[0] << " " << command[1];
    }
  }

  TemporaryFolder folder_;
};

TEST_F(Paths, ANameThatIsTooLong) {
  expect_plain_errors((folder_ / std::string(300, 'x')).string(), "File name too long");
}

TEST_F(Paths, LinksInACircle) {
  fs::create_symlink("circle", folder_ / "circle");
  expect_plain_errors((folder_ / "circle").string(), "symbolic links");
}

TEST_F(Paths, AFileInPlaceOfAFolder) {
  const std::string below = (folder_ / "text.txt/below").string();
  expect_plain_errors(below, "below");
}

TEST_F(Paths, AFolderThatOneMayNotEnter) {
  fs::create_directories(folder_ / "locked/below");
  fs::permissions(folder_ / "locked", fs::perms(0));
  // As another user, since nothing is locked for root.
  const bool root = ::geteuid() == 0;
  if (root && ::seteuid(65534) != 0) GTEST_SKIP() << "another user cannot be taken on here";
  const bool runs = ::access(TESSERA_PROGRAM, X_OK) == 0 || !root;
  if (runs) expect_plain_errors((folder_ / "locked/below").string(), "Permission denied");
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  fs::permissions(folder_ / "locked", fs::perms(0755));
  if (!runs) GTEST_SKIP() << "another user cannot start the program here";
}

}  // namespace
}  // namespace tessera
