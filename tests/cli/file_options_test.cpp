#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "cli/program.h"
#include "support/names_in.h"
#include "support/sample_trace.h"

namespace tessera {
namespace {

using testing::Arguments;
using ::testing::HasSubstr;
using Result = testing::ProgramResult;

/// Options and positional arguments that name files.
class FileOptions : public ::testing::Test {
 protected:
  /// An option of a command, as the completion of zsh has it.
  struct Option {
    Arguments command;
    std::string name;  ///< with its dashes; of a positional argument without
    std::string type;  ///< "FILE"; empty for a positional argument
    bool is_file = false;
  };

  std::vector<Option> all_options() const {
    const Result zsh = run({"completion", "zsh"});
    EXPECT_EQ(zsh.status, 0);
    const std::regex function(R"(^_tessera_(\w+)\(\) \{.*)"),
        option(R"(^    '(?:\*|\([^)]*\))(--[a-z-]+)\[.*\]:(\w+):(.*)'.*)"),
        positional(R"(^    '\*?:([A-Z]+):(.*)'.*)");
    std::vector<Option> options;
    Arguments command;
    std::istringstream lines(zsh.output);
    for (std::string line; std::getline(lines, line);) {
      std::smatch found;
      if (std::regex_match(line, found, function)) {
        command.clear();
        std::istringstream words(std::regex_replace(found.str(1), std::regex("_"), " "));
        for (std::string word; words >> word;) command.push_back(word);
      } else if (std::regex_match(line, found, option)) {
        options.push_back({command, found.str(1), found.str(2), found.str(3) == "_files"});
      } else if (std::regex_match(line, found, positional)) {
        options.push_back({command, found.str(1), "", found.str(2) == "_files"});
      }
    }
    return options;
  }
  Result run(const Arguments& arguments) const { return testing::run_program(output_, arguments); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write_run() const {
    fs::create_directory(folder_ / "run");
    write_trace(folder_ / "run/trace.json", testing::sample_run());
  }
  /// Expects an error that names the two, and no change in the folder.
  void expect_refused(const Arguments& arguments, const std::vector<std::string>& words) const {
    const std::vector<std::string> before = testing::names_in(folder_.path());
    const Result result = run(arguments);
    EXPECT_EQ(result.status, 1) << join(arguments, " ");
    for (const std::string& word : words) EXPECT_THAT(result.output, HasSubstr(word));
    EXPECT_THAT(result.output, HasSubstr("would overwrite"));
    EXPECT_EQ(testing::names_in(folder_.path()), before);
  }

  TemporaryFolder folder_;
  TemporaryFolder output_;
};

TEST_F(FileOptions, RefuseTheEmptyName) {
  size_t files = 0;
  for (const Option& option : all_options()) {
    if (!option.is_file) continue;
    ++files;
    const bool positional = !option.name.starts_with('-');
    const Result result = run(
        testing::joined(option.command, positional ? Arguments{""} : Arguments{option.name, ""}));
    EXPECT_EQ(result.status, 2) << join(option.command, " ");
    EXPECT_THAT(result.output, HasSubstr("error: " + option.name + ": the name is empty"));
  }
  EXPECT_GE(files, 40U);
}

/// An option that names a file has to be of the type of one. These are texts of another kind.
TEST_F(FileOptions, AreAllThatTakeATextWithAFewExceptions) {
  std::set<std::string> texts;
  for (const Option& option : all_options()) {
    if (option.type == "TEXT" && option.is_file) ADD_FAILURE() << option.name;
    if (option.type == "TEXT") texts.insert(option.name);
  }
  // Words of a list of choices, names of tokens, keys and phases, and words of people.
  EXPECT_EQ(texts,
            (std::set<std::string>{"--accept-key", "--beginning-of-document", "--collectives",
                                   "--delimiter", "--device", "--dtype", "--end-of-document",
                                   "--layout", "--metric", "--phase", "--precision", "--prompt",
                                   "--range", "--set", "--text-field", "--title", "--x"}));
}

TEST_F(FileOptions, RefuseAnOutputThatIsAnotherOne) {
  write_file(path("pipeline.toml"), "");
  const Arguments schedule{"bench", "schedule", path("pipeline.toml"), "--trace"};
  expect_refused(testing::joined(schedule, {path("a.svg"), "--svg", path("a.svg")}),
                 {"--svg", "--trace"});
  expect_refused(testing::joined(schedule, {path("./a.svg"), "--svg", path("a.svg")}), {"./a.svg"});
  expect_refused({"bench", "collectives", "--hardware", path("c.svg"), "--svg", path("c.svg")},
                 {"--hardware"});
}

TEST_F(FileOptions, RefuseAnOutputThatIsAnInput) {
  const std::string text = "not read";
  write_file(path("in.svg"), text);
  fs::create_symlink("in.svg", folder_ / "link.svg");
  fs::create_hard_link(folder_ / "in.svg", folder_ / "other.svg");
  fs::create_directory_symlink(".", folder_ / "here");
  const std::string in = path("in.svg");
  for (const std::string output :
       {"in.svg", "./in.svg", "here/in.svg", "link.svg", "other.svg", "here/here/link.svg"}) {
    SCOPED_TRACE(output);
    expect_refused({"trace", "draw", in, "--svg", path(output)}, {"--svg", "TRACE"});
  }
  const std::string link = path("link.svg");
  expect_refused({"explain", in, "--svg", link}, {"--svg", "CONFIG"});
  expect_refused({"explain", "none", "--hardware", in, "--svg", link}, {"--svg", "--hardware"});
  expect_refused({"plot", path("none"), in, "--output", link}, {"--output", "RUN"});
  expect_refused({"bench", "products", in, "--output", link}, {"--output", "CONFIG"});
  expect_refused({"bench", "schedule", in, "--trace", link}, {"--trace", "CONFIG"});
  expect_refused({"bench", "schedule", "none", "--times", in, "--svg", link}, {"--svg", "--times"});
  expect_refused({"eval", "--checkpoint", "none", "--tasks", in, "--predictions", link},
                 {"--predictions", "--tasks"});
  EXPECT_EQ(read_file(in), text);
}

/// The default of an output counts as well.
TEST_F(FileOptions, RefuseAnInputThatIsTheUsualOutput) {
  expect_refused({"bench", "products", "products.json"}, {"--output is products.json", "CONFIG"});
}

TEST_F(FileOptions, RefuseAnOutputThatIsTheTraceOfTheRun) {
  write_run();
  const std::string before = read_file(folder_ / "run/trace.json");
  fs::create_symlink("run/trace.json", folder_ / "link.svg");
  expect_refused({"trace", "draw", path("run"), "--svg", path("link.svg")},
                 {"--svg", "run/trace.json"});
  EXPECT_EQ(read_file(folder_ / "run/trace.json"), before);
}

TEST_F(FileOptions, TakeOneInputTwiceAndAnOutputThatIsThere) {
  write_run();
  const Arguments draw{"trace", "draw", path("run"), "--svg", path("run/step.svg")};
  EXPECT_EQ(run(draw).status, 0);
  EXPECT_EQ(run(draw).status, 0) << "the picture of before is not read";
  EXPECT_THAT(run({"plot", path("none"), path("none"), "--output", path("p.svg")}).output,
              HasSubstr("none"));
  const Result standard_output = run({"plot", "-", "--output", "-"});
  EXPECT_THAT(standard_output.output, ::testing::Not(HasSubstr("would overwrite")));
}

}  // namespace
}  // namespace tessera
