#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// What the program prints about itself: its manual page and the shells' completions.
class DocumentationTest : public ::testing::Test {
 protected:
  /// What a command prints, which must end well.
  std::string output_of(const std::vector<std::string>& arguments) {
    const auto result = testing::run_program(folder_, arguments);
    EXPECT_EQ(result.status, 0) << result.output;
    return result.output;
  }
  std::string shell(std::vector<std::string> arguments) {
    testing::Subprocess process(std::move(arguments), folder_.path() / "shell.txt");
    EXPECT_EQ(process.wait(), 0);
    return read_file(folder_.path() / "shell.txt");
  }
  /// What bash offers for the last of `words`.
  std::vector<std::string> offered(const std::string& words, int last) {
    const fs::path script = folder_.path() / "completion.bash";
    if (!fs::exists(script)) write_file(script, output_of({"completion", "bash"}));
    std::istringstream lines(shell({"/bin/bash", "-c",
                                    "source " + script.string() + "; COMP_WORDS=(" + words +
                                        "); COMP_CWORD=" + std::to_string(last) +
                                        "; _tessera; printf '%s\\n' \"${COMPREPLY[@]}\""}));
    std::vector<std::string> result;
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty()) result.push_back(line);
    }
    return result;
  }

  TemporaryFolder folder_;
};

TEST_F(DocumentationTest, BashCompletesCommandsOptionsAndValues) {
  EXPECT_THAT(offered("tessera tr", 1), ElementsAre("train", "trace"));
  EXPECT_THAT(offered("tessera checkpoint im", 2), ElementsAre("import"));
  EXPECT_THAT(offered("tessera checkpoint import --pre", 3), ElementsAre("--precision"));
  EXPECT_THAT(offered("tessera checkpoint import --precision ''", 4), ElementsAre("bf16", "fp32"));
  EXPECT_THAT(offered("tessera train a.toml --set train.st", 4),
              ElementsAre("train.steps=", "train.stop_after="));
  EXPECT_THAT(offered("tessera completion ''", 2), ElementsAre("bash", "zsh"));
  // Where the shell's own completion of file names is to serve.
  EXPECT_THAT(offered("tessera train con", 2), IsEmpty());
  // A value that is spelled like a command is none.
  EXPECT_THAT(offered("tessera prepare --output train --over", 4), ElementsAre("--overwrite"));
}

TEST_F(DocumentationTest, ZshReadsItsCompletions) {
  const std::string script = output_of({"completion", "zsh"});
  EXPECT_EQ(script.find("#compdef tessera\n"), 0U);
  EXPECT_THAT(script, HasSubstr("train.steps"));
  if (!fs::exists("/bin/zsh")) GTEST_SKIP() << "there is no zsh (scripts/setup installs it)";
  write_file(folder_.path() / "_tessera", script);
  shell({"/bin/zsh", "-n", (folder_.path() / "_tessera").string()});
  // A zsh in a terminal of its own completes a line; what it shows is read.
  write_file(folder_.path() / "drive.zsh", R"(
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1= ; fpath=($1 \$fpath); autoload -U compinit; compinit -u -D; echo re''ady"
zpty -r shell shown '*ready*' || exit 1
zpty -w -n shell $'tessera checkpoint export --dty\t'
zpty -r -m shell shown '*--dtype*' || exit 1
print -r -- "$shown"
)");
  EXPECT_THAT(shell({"/bin/zsh", (folder_.path() / "drive.zsh").string(), folder_.path().string()}),
              HasSubstr("--dtype"));
}

/// The words of a text that begin with two dashes.
std::set<std::string> options_in(const std::string& text) {
  std::set<std::string> result;
  for (size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at + 2)) {
    const size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at);
    if (at > 0 && (text[at - 1] == ' ' || text[at - 1] == ',')) {
      result.insert(text.substr(at, end - at));
    }
  }
  return result;
}

TEST_F(DocumentationTest, ManualPageHasEveryOptionOfTheHelpTexts) {
  const std::string page = output_of({"manual"});
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"prepare"},
                                             {"train"},
                                             {"eval"},
                                             {"generate"},
                                             {"explain"},
                                             {"checkpoint", "import"},
                                             {"checkpoint", "export"},
                                             {"bench", "gemm"},
                                             {"plot"},
                                             {"trace", "draw"},
                                             {"trace", "summarize"}}) {
    std::vector<std::string> arguments = command;
    arguments.emplace_back("--help");
    const std::set<std::string> options = options_in(output_of(arguments));
    EXPECT_THAT(options, Contains("--help"));
    const size_t begin = page.find(".SS tessera " + command[0] +
                                   (command.size() > 1 ? " " + command[1] : "") + "\n");
    ASSERT_NE(begin, std::string::npos) << command[0];
    const std::string section = page.substr(begin, page.find(".SS", begin + 3) - begin);
    for (std::string option : options) {
      for (size_t at = 0; (at = option.find('-', at)) != std::string::npos; at += 2) {
        option.insert(at, "\\");
      }
      EXPECT_THAT(section, HasSubstr(option)) << command[0];
    }
  }
}

TEST_F(DocumentationTest, TroffTakesTheManualPageWithoutAWarning) {
  if (!fs::exists("/usr/bin/groff")) {
    GTEST_SKIP() << "there is no groff (scripts/setup installs groff-base)";
  }
  write_file(folder_.path() / "tessera.1", output_of({"manual"}));
  const std::string shown = shell({"/usr/bin/groff", "-man", "-ww", "-Tascii", "-P-c",
                                   (folder_.path() / "tessera.1").string()});
  const size_t warning = shown.find("tessera.1:");  // what its warnings begin with
  EXPECT_EQ(warning, std::string::npos) << shown.substr(warning, 200);
  EXPECT_NE(shown.find("Pretrain a model as a TOML file says"), std::string::npos);
}

}  // namespace
}  // namespace tessera
