#include "verify/verify.h"

#include <algorithm>
#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "config/load_config.h"
#include "config/mesh_of.h"
#include "support/error_of.h"
#include "support/random_batches.h"
#include "verify/verify_memory.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

RunConfig small_mixture() {
  RunConfig config = parse_config(R"(
    [model]
    family = "olmoe"
    layers = 2
    hidden_size = 16
    heads = 4
    kv_heads = 4
    experts = 8
    experts_per_token = 2
    expert_size = 8
    vocabulary_size = 32
    [data]
    directory = "none"
    context = 8
    [train]
    micro_batch = 2
    global_batch = 16
    precision = "fp32"
    [parallel]
    tensor = 2
    expert = 4
  )",
                                  "test");
  config.run.threads = 1;
  return config;
}

class VerifyTest : public ::testing::Test {
 protected:
  RunConfig config_ = small_mixture();
  /// Expects that eight ranks have this mesh and compute the model, with both wires of gradients.
  void expect_is_one_rank(const std::string& layout) {
    const Mesh mesh = mesh_of(config_, 8);
    ASSERT_EQ(mesh.text(), layout);
    for (const WireFormat wire : {WireFormat::fp32, WireFormat::bf16}) {
      config_.shard.gradients_wire = wire;
      const Verification found = verify(config_, mesh, {});
      EXPECT_TRUE(found.passed()) << verification_text(found);
    }
  }

  Mesh mesh_ = mesh_of(config_, 4);
};

TEST_F(VerifyTest, ALayoutOfTensorExpertAndDataIsTheModelOfOneRank) {
  const Verification found = verify(config_, mesh_, {});
  EXPECT_TRUE(found.same()) << verification_text(found);
  EXPECT_EQ(found.exact.size(), 7U);
  EXPECT_THAT(verification_text(found),
              AllOf(HasSubstr("2 tensor x 2 data, 4 expert"), HasSubstr("the same model")));
  const auto json = nlohmann::json::parse(verification_json(found));
  EXPECT_EQ(json["same"], true);
  EXPECT_EQ(json["ranks"], 4);
  // Another order of sums is other rounding: the layout was really another one.
  double rounding = 0;
  for (const Deviation& deviation : found.exact) rounding += deviation.relative;
  EXPECT_GT(rounding, 0);
}

/// Two nodes of four ranks each that share models in twos, or of two pairs each. Gradients that
/// travel in bf16 do so where the run has fp32; what is compared in fp64 is not rounded.
TEST_F(VerifyTest, ALayoutOfNodesIsTheModelOfOneRank) {
  config_.parallel.expert = 2;
  config_.parallel.levels = {4};
  expect_is_one_rank("2 tensor x 2 data.0 x 2 data.1, 2 expert");
  config_.parallel.tensor = 1;
  config_.parallel.levels = {2, 2};
  expect_is_one_rank("2 data.0 x 2 data.1 x 2 data.2, 2 expert");
}

TEST_F(VerifyTest, OneRankTakesTheBalanceLossesSetsOfTokens) {
  config_.model.balance_coefficient = 0.5;
  for (const auto set : {BalanceTokens::rank, BalanceTokens::global_batch}) {
    config_.model.balance_tokens = set;
    const Verification found = verify(config_, mesh_, {});
    EXPECT_TRUE(found.same()) << word(set) << ": " << verification_text(found);
  }
  config_.model.balance_tokens = BalanceTokens::rank;
  config_.model.capacity_factor = 1.5;
  EXPECT_THAT(error_of([&] { verify(config_, mesh_, {}); }),
              AllOf(HasSubstr("model.balance_tokens"), HasSubstr("2 data-parallel ranks"),
                    HasSubstr("parallel.capacity_tokens")));
}

TEST_F(VerifyTest, PinsTheChoicesOfExpertsWhereItRounds) {
  config_.train.precision = Precision::bf16;
  const Verification found = verify(config_, mesh_, {.steps = 3});
  EXPECT_TRUE(found.passed()) << verification_text(found);
  EXPECT_THAT(verification_text(found),
              HasSubstr("in bf16 with the choices of experts pinned to those of fp64"));
  EXPECT_EQ(nlohmann::json::parse(verification_json(found))["pinned_choices"], true);
  ASSERT_EQ(found.expected[3].quantity, "router counts");
  EXPECT_EQ(found.expected[3].relative, 0);
  EXPECT_EQ(found.rounded[3].relative, 0);
}

TEST_F(VerifyTest, RefusesARunForADevice) {
  config_.run.device = Device::emulated;
  try {
    verify(config_, mesh_, {});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("run.device is \"emulated\""), HasSubstr("set it to \"cpu\"")));
  }
}

TEST_F(VerifyTest, RefusesAContextThatDataCouldNotHave) {
  config_.train.micro_batch = 8;  // other sizes are tried after this one
  EXPECT_THAT(error_of([&] { verify(config_, mesh_, {.context = 7}); }),
              ::testing::StartsWith("--context (7) does not divide over"));
  EXPECT_THAT(error_of([&] { verify(config_, mesh_, {.context = 99'999'999'999}); }),
              ::testing::StartsWith("--context: found 99999999999; expected a whole number"));
}

TEST_F(VerifyTest, RefusesAModelThatDoesNotFitBeforeItRuns) {
  config_.model.expert_size = int64_t{1} << 36;
  try {
    verify(config_, mesh_, {});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("only a smaller model helps"));
  }
}

TEST_F(VerifyTest, ALayoutOfUnevenPiecesIsTheModelOfOneRank) {
  config_.model.vocabulary_size = 37;
  config_.model.shared_experts = 1;
  config_.model.expert_size = 9;
  const Verification found = verify(config_, mesh_of(config_, 4), {});
  EXPECT_TRUE(found.same()) << verification_text(found);
}

/// What someone who forgets something would give: the results of one rank with one change.
class OneMistake : public VerifyTest {
 protected:
  OneMistake() {
    trial_ = trial_of(config_, mesh_, trial_sizes(config_, mesh_, 0).front());
    trial_.compute = DType::f64;
    trial_.mesh = Mesh();
    const auto batches = testing::random_batches(trial_.size, 32, 1, 1, 3);
    one_ = run_layout(trial_, batches);
    other_ = run_layout(trial_, batches);
  }
  /// The verification of one rank's results against the changed ones.
  Verification found() const { return {.trial = trial_, .exact = deviations(one_, other_)}; }

  LayoutTrial trial_;
  LayoutResults one_, other_;
};

TEST_F(OneMistake, IsNone) { EXPECT_TRUE(found().same()) << verification_text(found()); }

TEST_F(OneMistake, OfOneElementOfOneGradientIsNamed) {
  const Tensor& gradient = other_.gradients[0].at("layers.1.experts.down");
  double largest = 0;
  for (const double element : gradient.values<double>()) largest = std::max(largest, element);
  gradient.data<double>()[5] += 1e-9 * largest;
  EXPECT_FALSE(found().same());
  EXPECT_THAT(verification_text(found()), HasSubstr("layers.1.experts.down"));
}

TEST_F(OneMistake, OfTheNormAloneIsNamed) {
  other_.steps[0].results.gradient_norm *= 1 + 1e-6;
  EXPECT_FALSE(found().same());
  EXPECT_THAT(verification_text(found()), HasSubstr("gradient norm   1.0e-06"));
}

TEST_F(OneMistake, OfAWeightThatIsNoNumberIsNamed) {
  const Tensor& weight = other_.weights.at("layers.0.attention.query");
  weight.data<double>()[3] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(found().same());
  EXPECT_THAT(verification_text(found()), HasSubstr("layers.0.attention.query"));
}

TEST_F(OneMistake, OfOneTokenThatChoseAnotherExpertIsNamed) {
  other_.steps[0].expert_tokens[1][3] += 1;
  EXPECT_FALSE(found().same());
  EXPECT_THAT(verification_text(found()), HasSubstr("mixture layer 1, expert 3, step 1"));
}

/// The values that a layout and one rank compute, of which the layout's model may have a mistake.
class Streams : public VerifyTest {
 protected:
  StreamComparison compare(const std::function<void(ModelConfig&)>& mistake) {
    LayoutTrial trial{.model = config_.model,
                      .size = {.sequences = 8, .context = 8},
                      .mesh = {},
                      .streams = true};
    const auto batches = testing::random_batches(trial.size, 32, 1, 1, 3);
    one_ = run_layout(trial, batches).streams[0];
    trial.mesh = mesh_;
    mistake(trial.model);
    ranks_ = run_layout(trial, batches).streams;
    return compare_streams(one_, mesh_, ranks_, 1e-10);
  }

  ValueStream one_;
  std::vector<ValueStream> ranks_;
};

TEST_F(Streams, OfALayoutHaveMostValuesOfOneRank) {
  const StreamComparison found = compare([](ModelConfig&) {});
  EXPECT_FALSE(found.first) << found.first->name;
  // Norms of split rows and rows of an exchange have no counterpart.
  EXPECT_GT(found.compared, 2 * found.unmatched) << found.unmatched;
}

TEST_F(Streams, NameTheFirstOperationThatDiffers) {
  const StreamComparison epsilon = compare([](ModelConfig& model) { model.norm_epsilon = 1e-2; });
  ASSERT_TRUE(epsilon.first);
  EXPECT_EQ(epsilon.first->name, "layers.0 norm: rms_norm (forward), output 0");
  const StreamComparison angles = compare([](ModelConfig& model) { model.rope_theta = 77; });
  ASSERT_TRUE(angles.first);
  EXPECT_EQ(angles.first->name, "attention: rotary_table (forward), output 0");
  const StreamComparison z_loss =
      compare([](ModelConfig& model) { model.router_z_coefficient *= 2; });
  ASSERT_TRUE(z_loss.first);
  EXPECT_EQ(z_loss.first->name, "router: router_z_loss (forward), output 0");
}

/// Ranks that share a key head have it more often than one rank has, which is no difference.
TEST_F(Streams, NameNoHeadThatRanksShare) {
  config_.model.kv_heads = 1;
  const StreamComparison right = compare([](ModelConfig&) {});
  EXPECT_FALSE(right.first) << right.first->name;
  const StreamComparison z_loss =
      compare([](ModelConfig& model) { model.router_z_coefficient *= 2; });
  ASSERT_TRUE(z_loss.first);
  EXPECT_EQ(z_loss.first->name, "router: router_z_loss (forward), output 0");
}

TEST_F(Streams, SayHowManyValuesBeforeTheFirstHaveNoCounterpart) {
  const StreamComparison found =
      compare([](ModelConfig& model) { model.router_z_coefficient *= 2; });
  ASSERT_TRUE(found.first);
  int64_t before = 0, unmatched = 0;
  for (const ValueStream::Entry& entry : one_.entries()) {
    if (entry.name == found.first->name) break;
    ++before;
    const std::span<const size_t> there = ranks_[0].indices_of(entry.name);
    const bool as_often = there.size() == one_.indices_of(entry.name).size();
    const auto of_exchange = [&](size_t at) {
      return ranks_[0].entries()[at].distribution.text(mesh_).find("exchange") != std::string::npos;
    };
    unmatched += !as_often || std::ranges::any_of(there, of_exchange) ? 1 : 0;
  }
  EXPECT_EQ(found.first->before, before);
  EXPECT_EQ(found.first->unmatched_before, unmatched);
  EXPECT_GT(unmatched, 0);
  EXPECT_LT(unmatched, before);
}

TEST_F(OneMistake, IsReportedWithTheValuesThatWereNotCompared) {
  Verification report = found();
  report.values = {.first = {{"layers.1 head: linear (forward), output 0", 1e-3, 40, 7}},
                   .compared = 50,
                   .unmatched = 9};
  EXPECT_THAT(verification_text(report),
              HasSubstr("by 1.0e-03: layers.1 head: linear (forward), output 0; of the 40 values "
                        "before it, 7 have no counterpart and were not compared\n"));
  const auto json = nlohmann::json::parse(verification_json(report));
  EXPECT_EQ(json["first_difference"]["values_before"], 40);
  EXPECT_EQ(json["first_difference"]["not_compared_before"], 7);
  report.values->first.reset();
  EXPECT_THAT(verification_text(report),
              HasSubstr("none of 50 values on the way differs in the first micro-batch; 9 more"));
  EXPECT_EQ(nlohmann::json::parse(verification_json(report))["values"]["not_compared"], 9);
}

std::vector<std::pair<int64_t, int64_t>> sizes_of(const RunConfig& config, int64_t context) {
  std::vector<std::pair<int64_t, int64_t>> result;
  const Mesh mesh = mesh_of(config, 15);
  for (const TrialSize& size : trial_sizes(config, mesh, context)) {
    result.emplace_back(size.micro_batch, size.context);
  }
  return result;
}

TEST(TrialSizes, AreHalvedAndDivideOverTheMesh) {
  RunConfig config = small_mixture();
  config.data.context = 270;
  config.train.micro_batch = 9;
  config.train.global_batch = 9;
  config.model.heads = config.model.kv_heads = 3;
  config.model.hidden_size = 18;
  config.parallel = {.tensor = 3, .context = 5};
  EXPECT_THAT(sizes_of(config, 0), ::testing::ElementsAre(Pair(9, 270), Pair(4, 270), Pair(4, 150),
                                                          Pair(4, 90), Pair(2, 90)));
  EXPECT_THAT(sizes_of(config, 30), ::testing::ElementsAre(Pair(9, 30), Pair(4, 30), Pair(2, 30)));
}

/// What is too much work or does not fit is cut, and the text says which of both it was.
class CutSizes : public ::testing::Test {
 protected:
  CutSizes() {
    config_.parallel = {};
    config_.model.layers = 1;
    config_.data.context = 128;
    config_.train.micro_batch = 8;
    mesh_ = mesh_of(config_, 2);
    sizes_ = trial_sizes(config_, mesh_, 0);
  }
  size_t within(double most) const { return first_within_work(config_, mesh_, sizes_, 2, most); }
  size_t fits(int64_t memory, size_t from = 0) const {
    return first_that_fits(config_, mesh_, sizes_, 2, memory, from);
  }
  int64_t memory_of(size_t i) const {
    return verify_memory(trial_of(config_, mesh_, sizes_[i]), 2).bytes();
  }
  double work_of(size_t i) const { return verify_work(trial_of(config_, mesh_, sizes_[i]), 2); }
  std::string text(size_t within, size_t chosen, double most) const {
    return cut_text(config_, mesh_, sizes_, within, chosen, 2, most);
  }

  RunConfig config_ = small_mixture();
  Mesh mesh_;
  std::vector<TrialSize> sizes_;
};

constexpr double kAnyWork = std::numeric_limits<double>::infinity();

TEST_F(CutSizes, AreThoseOfTheRunWhereTheyFit) {
  EXPECT_EQ(text(0, 0, kWorkLimit), "");
  EXPECT_EQ(fits(memory_of(0)), 0U);
  EXPECT_EQ(fits(memory_of(0) - 1), 1U);
  EXPECT_EQ(fits(memory_of(0), 2), 2U);
  EXPECT_EQ(fits(1), sizes_.size() - 1);
  EXPECT_EQ(text(0, sizes_.size() - 1, kAnyWork),
            "train.micro_batch is 8, of which 2 were computed; data.context is 128, of which 64 "
            "were computed, so that it fits in memory");
}

TEST_F(CutSizes, AreCutForTheWork) {
  EXPECT_EQ(within(work_of(0)), 0U);
  EXPECT_EQ(within(work_of(0) * 0.999), 1U);
  EXPECT_EQ(within(1), sizes_.size() - 1);
  EXPECT_EQ(within(kAnyWork), 0U);
  EXPECT_EQ(text(1, 1, 1e9),
            "train.micro_batch is 8, of which 4 were computed, so that one rank takes no more than "
            "1e+09 floating-point operations (--full lifts that)");
  EXPECT_THAT(text(1, 2, 1e9), HasSubstr("(--full lifts that) and so that it fits in memory"));
}

TEST_F(CutSizes, SayThatTheSmallestIsTooMuchWork) {
  const size_t last = sizes_.size() - 1;
  EXPECT_THAT(text(last, last, 1e3),
              AllOf(HasSubstr("no more than 1e+03"), HasSubstr("; the smallest size takes "),
                    HasSubstr("on one rank, which is more than 1e+03")));
}

/// A context that the user gives is nothing that was cut.
TEST_F(CutSizes, SayThatTheContextIsTheUsers) {
  sizes_ = trial_sizes(config_, mesh_, 32);
  EXPECT_EQ(text(0, 0, kAnyWork), "data.context is 128, and --context 32 was computed");
  EXPECT_EQ(text(0, 1, kAnyWork),
            "data.context is 128, and --context 32 was computed; train.micro_batch is 8, of which "
            "4 were computed, so that it fits in memory");
}

TEST_F(CutSizes, AreSaidByTheVerification) {
  config_.train.micro_batch = 4;
  config_.data.context = 16;
  const Verification cut = verify(config_, mesh_, {.steps = 1, .work_limit = 1});
  EXPECT_EQ(cut.trial.size.sequences, 4);
  EXPECT_THAT(verification_text(cut), AllOf(HasSubstr("--full"), HasSubstr("the smallest size")));
  EXPECT_THAT(verification_text(cut), Not(HasSubstr("memory")));
  const Verification full = verify(config_, mesh_, {.steps = 1, .work_limit = kAnyWork});
  EXPECT_EQ(full.trial.size.sequences, 8);
  EXPECT_EQ(full.cut, "");
}

}  // namespace
}  // namespace tessera
