// Commands on a configuration of several phases.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using Result = testing::ProgramResult;

/// Needs no data: the vocabulary is given.
constexpr const char* kConfig = R"([run]
threads = 2
[model]
family = "llama"
layers = 1
hidden_size = 16
heads = 2
kv_heads = 2
feed_forward_size = 16
vocabulary_size = 32
[data]
context = 8
[train]
micro_batch = 1
global_batch = 2
precision = "fp32"
[[train.phases]]
steps = 30
[[train.phases]]
name = "wide"
steps = 5
global_batch = 4
[[train.phases]]
name = "long"
tokens = 100
context = 16
rope_theta = 1e6
)";

class PhasesCommandTest : public ::testing::Test {
 protected:
  Result run(const std::string& command, const testing::Arguments& more = {}) {
    folder_.write("phases.toml", kConfig);
    testing::Arguments arguments{command};
    if (command == "bench") arguments.emplace_back("step");
    arguments.push_back((folder_ / "phases.toml").string());
    return testing::run_program(folder_, testing::joined(arguments, more));
  }

  TemporaryFolder folder_;
};

TEST_F(PhasesCommandTest, ExplainShowsThemAndTheStepOfOne) {
  const Result all = run("explain");
  ASSERT_EQ(all.status, 0) << all.output;
  EXPECT_THAT(all.output, AllOf(HasSubstr("1 to 30"), HasSubstr("31 to 35"), HasSubstr("36 to 39"),
                                HasSubstr("the step of phase 1:"), HasSubstr("1000000")));
  const Result one = run("explain", {"--phase", "long", "--json"});
  ASSERT_EQ(one.status, 0) << one.output;
  const Json json = Json::parse(one.output);
  EXPECT_EQ(json["totals"]["tokens_per_step"], 2 * 16);
  ASSERT_EQ(json["phases"].size(), 3U);
  EXPECT_EQ(json["phases"][2]["rope_theta"], 1e6);
  EXPECT_THAT(run("explain", {"--phase", "4"}).output,
              HasSubstr("there is no phase 4; the run has phase 1, wide, long"));
  EXPECT_THAT(run("explain", {"--set", "train.phases=[]", "--phase", "1"}).output,
              HasSubstr("the configuration has no [[train.phases]]"));
}

TEST_F(PhasesCommandTest, VerifyAndBenchGoThroughThoseWhoseProgramsDiffer) {
  const Result verified = run("verify", {"--ranks", "2", "--steps", "1"});
  EXPECT_EQ(verified.status, 0) << verified.output;
  EXPECT_THAT(verified.output,
              AllOf(HasSubstr("phase 1:\n"), HasSubstr("long:\n"), Not(HasSubstr("wide:\n")),
                    HasSubstr("2 sequences of 8 random"), HasSubstr("2 sequences of 16 random")));
  const Result timed = run("bench", {"--steps", "1", "--warmup", "0", "--json"});
  EXPECT_EQ(timed.status, 0) << timed.output;
  EXPECT_THAT(timed.output,
              AllOf(HasSubstr("\"phase\":\"phase 1\""), HasSubstr("\"phase\":\"long\""),
                    Not(HasSubstr("\"phase\":\"wide\""))));
}

}  // namespace
}  // namespace tessera
