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
