#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/parse_arguments.h"
#include "cli/program.h"
#include "support/hugging_face_folder.h"
#include "support/prepared_data.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Result = testing::ProgramResult;

/// Numbers that nobody means.
class Numbers : public ::testing::Test {
 protected:
  Result run(std::vector<std::string> arguments) const {
    return testing::run_program(folder_, std::move(arguments));
  }
  std::string path(const char* name) const { return (folder_ / name).string(); }

  TemporaryFolder folder_;
};

TEST_F(Numbers, AnEmptyTextAndNanAreNone) {
  const std::vector<std::vector<std::string>> commands{
      {"prepare", "--input", "none", "--output", "none", "--held-out", ""},
      {"prepare", "--input", "none", "--output", "none", "--seed", ""},
      {"explain", "none", "--rank", ""},
      {"generate", "--checkpoint", "none", "--prompt", "a", "--temperature", "NaN"},
      {"trace", "summarize", "none", "--gemm-peak", "nan"}};
  for (const std::vector<std::string>& command : commands) {
    const Result result = run(command);
    EXPECT_NE(result.status, 0);
    const std::string problem = command.back().empty() ? ": found nothing; expected a number"
                                                       : "; expected a finite number";
    EXPECT_THAT(result.output,
                AllOf(HasSubstr("tessera: error: " + *(command.end() - 2)), HasSubstr(problem)));
  }
}

TEST_F(Numbers, ThreadsBeyondAnyMachineAreRefused) {
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"eval", "--checkpoint", path("none"), "--threads", "1000000"},
           {"eval", "--checkpoint", path("none"), "--tasks", path("none"), "--threads", "100000"},
           {"generate", "--checkpoint", path("none"), "--prompt", "a", "--threads", "100000"},
           {"prepare", "--input", path("none"), "--output", path("out"), "--tokenizer", "bytes",
            "--threads", "100000"},
           {"bench", "attention", "--threads", "100000"}}) {
    const Result result = run(command);
    EXPECT_NE(result.status, 0);
    EXPECT_THAT(result.output, AllOf(HasSubstr("00000"), HasSubstr("4096")));
  }
}

TEST_F(Numbers, OutOfTheirRangeAreRefusedWithOneThatPeopleCanRead) {
  for (const auto& [command, problem] :
       std::vector<std::pair<std::vector<std::string>, const char*>>{
           {{"trace", "draw", "none", "--svg", "a.svg", "--ranks", "-1"}, "range 0 to 1048575;"},
           {{"trace", "summarize", "none", "--rank", "-1"}, "range 0 to 1048575;"},
           {{"trace", "summarize", "none", "--gemm-peak", "0"}, "found 0; expected more than 0;"},
           {{"generate", "--checkpoint", "none", "--prompt", "", "--tokens", "0"},
            "found 0; expected 1 or more;"},
           {{"generate", "--checkpoint", "none", "--prompt", "", "--top-p", "0"},
            "found 0; expected more than 0;"},
           {{"generate", "--checkpoint", "none", "--prompt", "", "--top-k", "-1"},
            "found -1; expected 0 or more;"},
           {{"eval", "--checkpoint", "none", "--batch", "0"}, "found 0; expected 1 or more;"},
           {{"plot", "none", "--smooth", "x"}, "found x; expected 1 or more;"},
           {{"verify", "none", "--context", "0"}, "found 0; expected 1 or more;"},
           {{"bench", "collectives", "--sizes", "1MiB,0KiB"}, "found '0KiB'; expected a size from"},
           {{"bench", "memory", "--sizes", "0.5"}, "found '0.5'; expected a size from 1B to 1PB;"},
           {{"checkpoint", "export", "none", "--output", "a", "--shard-size", "0"},
            "found '0'; expected a size from 1kB to 1PB;"}}) {
    const Result result = run(command);
    EXPECT_EQ(result.status, 2) << result.output;
    EXPECT_THAT(result.output,
                AllOf(HasSubstr("tessera: error: " + *(command.end() - 2)), HasSubstr(problem)));
  }
}

TEST_F(Numbers, InAListAreEachThereAndThereOnce) {
  const std::vector<std::string> draw{"trace", "draw", "none", "--svg", "a.svg"};
  for (const auto& [command, option, repeated] :
       std::vector<std::tuple<std::vector<std::string>, const char*, const char*>>{
           {draw, "--ranks", "0,00"},
           {{"bench", "collectives"}, "--ranks", "2,3,2"},
           {{"bench", "collectives"}, "--sizes", "1KiB,1024"},
           {{"bench", "collectives"}, "--collectives", "broadcast,broadcast"},
           {{"bench", "memory"}, "--sizes", "1MiB,2MiB,2MiB"},
           {{"bench", "attention"}, "--tokens", "8,8"},
           {{"bench", "gemm"}, "--m", "8,8"},
           {{"bench", "gemm"}, "--n", "8,8"},
           {{"bench", "gemm"}, "--k", "8,8"},
           {{"bench", "gemm"}, "--precision", "fp64,fp64"},
           {{"bench", "gemm"}, "--layout", "forward,forward"},
           {{"plot", "none"}, "--metric", "loss,loss"}}) {
    SCOPED_TRACE(option);
    const std::string first = std::string(repeated).substr(0, std::string(repeated).find(','));
    const auto expect_error = [&](const Result& result, const char* problem) {
      EXPECT_EQ(result.status, 2) << result.output;
      EXPECT_THAT(result.output,
                  AllOf(HasSubstr(std::string("tessera: error: ") + option), HasSubstr(problem)));
    };
    expect_error(run(testing::joined(command, {option, repeated})), "twice; expected it once");
    for (const std::string& list : {"," + first, first + ",", first + ",," + repeated}) {
      SCOPED_TRACE(list);
      expect_error(run(testing::joined(command, {option, list})), "found an empty entry");
    }
    expect_error(run(testing::joined(command, {std::string(option) + "=," + first})),
                 "found an empty entry");
  }
}

/// Commas stay where an option takes a text.
TEST_F(Numbers, NoEntryIsMadeOfATextWithCommas) {
  const Result result = run({"explain", "none", "--phase", ",a,,b,"});
  EXPECT_THAT(result.output, HasSubstr("none"));
  const Result set = run({"explain", path("absent,,file,")});
  EXPECT_THAT(set.output, HasSubstr("absent,,file,: "));
}

TEST_F(Numbers, BatchesAndTokensBeyondWhatIsThere) {
  testing::HuggingFaceFolder source(folder_ / "source", testing::small_olmoe_config(), DType::f32);
  source.write();
  write_file(folder_ / "source/tokenizer.json", "{\"kind\": \"bytes\"}");
  testing::prepare_small_data(folder_.path());
  ASSERT_EQ(
      run({"checkpoint", "import", path("source"), "--output", path("model"), "--quiet"}).status,
      0);
  const auto loss = [&](const char* batch) {
    const Result result = run({"eval", "--checkpoint", path("model"), "--data", path("data"),
                               "--instances", "1", "--batch", batch, "--json"});
    EXPECT_EQ(result.status, 0) << result.output;
    return result.status == 0 ? nlohmann::json::parse(result.output)["loss"].get<double>() : 0;
  };
  const double expected = loss("1");
  EXPECT_EQ(loss("1000000"), expected);
  EXPECT_EQ(loss("9223372036854775807"), expected);

  const Result generated = run({"generate", "--checkpoint", path("model"), "--prompt", "a",
                                "--tokens", "9223372036854775807"});
  EXPECT_EQ(generated.status, 1);
  EXPECT_THAT(generated.output, HasSubstr("more than the model's context of 64"));
}

}  // namespace
}  // namespace tessera
