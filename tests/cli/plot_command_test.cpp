#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"
#include "support/temporary_folder.h"
#include "support/xml.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using Result = testing::ProgramResult;

class PlotCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"first", "second"}) {
      std::string lines;
      for (int step = 1; step <= 40; ++step) {
        lines += fmt::format("{{\"step\":{},\"loss\":{},\"grad_norm\":1,\"tokens\":{}}}\n", step,
                             8.0 / step, 100 * step);
      }
      folder_.write(fmt::format("{}/metrics.jsonl", name), lines);
    }
  }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  Result plot(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "plot");
    return testing::run_program(folder_, std::move(arguments));
  }

  TemporaryFolder folder_;
};

TEST_F(PlotCommandTest, DrawsMetricsOfSeveralRuns) {
  const Result result =
      plot({path("first"), path("second/metrics.jsonl"), "--metric", "loss,grad_norm", "--x",
            "tokens", "--range", "500:", "--log-y", "--smooth", "5", "--title", "Two runs",
            "--output", path("both.svg")});
  ASSERT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("both.svg: loss, grad_norm of 2 runs"));
  std::string texts;
  for (const auto& element : testing::parse_xml(read_file(path("both.svg")))) {
    texts += element.text + "|";
  }
  for (const char* text : {"|Two runs|", "|first|", "|second|", "|gradient norm|", "|tokens|",
                           "strong: mean of 5 steps"}) {
    EXPECT_THAT(texts, HasSubstr(text));
  }
  const Result printed = plot({path("first"), "--output", "-"});
  EXPECT_EQ(testing::parse_xml(printed.output)[0].name, "svg");
}

TEST_F(PlotCommandTest, EachXAxisHasItsNameInTheHelp) {
  EXPECT_THAT(plot({"--help"}).output, HasSubstr("{step,tokens,seconds,flops}"));
  EXPECT_THAT(plot({path("first"), "--x", "tokens", "--output", "-"}).output,
              HasSubstr(">tokens</text>"));
}

TEST_F(PlotCommandTest, ErrorsSayWhatWasFoundAndWhatToDo) {
  const auto expect_error = [&](std::vector<std::string> arguments, const char* message) {
    arguments.insert(arguments.end(), {"--output", path("picture.svg")});
    const Result result = plot(std::move(arguments));
    EXPECT_EQ(result.status, 1) << result.output;
    EXPECT_THAT(result.output, HasSubstr(message));
    EXPECT_FALSE(fs::exists(path("picture.svg")));
  };
  expect_error({path("third")}, "third does not exist");
  expect_error({path("first"), "--metric", "gradnorm"}, "did you mean 'grad_norm'");
  expect_error({path("first"), path("first/metrics.jsonl")}, "is given twice");
  expect_error({path("first"), "--range", "5"}, "expected A:B");
  expect_error({path("first"), "--range", "5:x"}, "expected A:B");
  expect_error({path("first"), "--range", "5:5"}, "above its beginning");
  EXPECT_NE(plot({}).status, 0);
  EXPECT_NE(plot({path("first"), "--x", "days"}).status, 0);
  EXPECT_NE(plot({path("first"), "--x", "2"}).status, 0);
  EXPECT_NE(plot({path("first"), "--smooth", "0"}).status, 0);
  const Result picture = plot({path("first"), "--output", path("picture.png")});
  EXPECT_THAT(picture.output, HasSubstr("pictures are SVG"));
}

}  // namespace
}  // namespace tessera
