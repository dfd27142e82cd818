// What `verify` compares in the precision of a run: rounding, and bits.
#include <algorithm>
#include <bit>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/bfloat16.h"
#include "support/error_of.h"
#include "support/random_batches.h"
#include "verify/changed_programs.h"
#include "verify/verify.h"
#include "verify/verify_memory.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::nodes_of;
using testing::run_by;

LayoutTrial trial_of_model(int64_t experts) {
  LayoutTrial trial{.model = {}, .mesh = Mesh({.data = {4}})};
  ModelConfig& model = trial.model;
  model.layers = 2;
  model.hidden_size = 16;
  model.heads = 4;
  model.kv_heads = 2;
  model.vocabulary_size = 32;
  model.initialization_deviation = 0.2;
  if (experts == 0) {
    model.feed_forward_size = 24;
  } else {
    model.experts = experts;
    model.experts_per_token = 2;
    model.expert_size = 12;
    model.router_z_coefficient = 0.01;
  }
  trial.size = {.sequences = 8, .context = 16, .document_mask = true};
  trial.compute = DType::f32;
  return trial;
}

std::vector<LayoutTrial> trials_that_add_up_parts() {
  std::vector<LayoutTrial> trials{trial_of_model(0), trial_of_model(8)};
  const auto add = [&](int64_t experts, const std::vector<int>& levels, WireFormat wire) {
    trials.push_back(trial_of_model(experts));
    trials.back().mesh = Mesh({.data = levels});
    trials.back().shard.unit_options.gradients_wire = {wire};
    return &trials.back();
  };
  add(0, {2, 2}, WireFormat::fp32)->recompute = {.norm = true, .attention = true};
  add(8, {2, 2}, WireFormat::bf16);
  add(0, {4}, WireFormat::bf16);
  add(0, {1, 4}, WireFormat::fp32);
  return trials;
}

TEST(VerifyBits, AreThoseOfOneRankThatAddsUpInTheOrderOfDataRanks) {
  for (const DType precision : {DType::f32, DType::bf16}) {
    for (LayoutTrial trial : trials_that_add_up_parts()) {
      trial.compute = precision;
      const Verification found = verify(trial, 2);
      EXPECT_TRUE(found.passed()) << verification_text(found);
      ASSERT_TRUE(found.bits);
      EXPECT_THAT(verification_text(found),
                  HasSubstr("one rank that adds up in the layout's order has the same bits"));
      const auto json = nlohmann::json::parse(verification_json(found));
      EXPECT_EQ(json["bits_in_the_layouts_order"]["same"], true);
    }
  }
}

/// Two nodes add up within themselves first, and may round what they send. One rank that adds the
/// parts one after the other, or does not round, has other bits.
TEST(VerifyBits, AreThoseOfTheOrderOfNodesAndOfTheirRounding) {
  LayoutTrial trial = trial_of_model(0);
  const auto batches = testing::random_batches(trial.size, 32, 1, 2, 3);
  for (const WireFormat wire : {WireFormat::fp32, WireFormat::bf16}) {
    trial.mesh = Mesh({.data = {2, 2}});
    trial.shard.unit_options.gradients_wire = {wire};
    const LayoutResults layout = run_layout(trial, batches);
    const auto other_bits = [&](const SumOrder& order) {
      LayoutTrial one = trial;
      one.mesh = Mesh();
      one.parts = 4;
      one.sum_order = order;
      return first_different_bits(run_layout(one, batches), layout);
    };
    EXPECT_FALSE(other_bits({.levels = {2, 2}, .wire = wire}));
    EXPECT_TRUE(other_bits({.levels = {}, .wire = wire}));
    EXPECT_TRUE(other_bits({.levels = {4}, .wire = wire}));
    const WireFormat other = wire == WireFormat::fp32 ? WireFormat::bf16 : WireFormat::fp32;
    EXPECT_TRUE(other_bits({.levels = {2, 2}, .wire = other}));
  }
}

/// The order is what makes the bits the same: one rank that adds up as it always does has others.
TEST(VerifyBits, AreOthersInAnotherOrder) {
  LayoutTrial trial = trial_of_model(0);
  const auto batches = testing::random_batches(trial.size, 32, 1, 2, 3);
  const LayoutResults layout = run_layout(trial, batches);
  trial.mesh = Mesh();
  EXPECT_TRUE(first_different_bits(run_layout(trial, batches), layout));
  trial.parts = 4;
  const LayoutResults parts = run_layout(trial, batches);
  EXPECT_FALSE(first_different_bits(parts, layout));
  // The last bit of one number is seen, and named.
  auto& number = layout.weights.at("layers.1.attention.key").data<float>()[7];
  number = std::bit_cast<float>(std::bit_cast<uint32_t>(number) ^ 1U);
  EXPECT_EQ(first_different_bits(parts, layout), "the weight layers.1.attention.key");
}

TEST(VerifyBits, AreComparedWhereEachRankAddsUpItsPart) {
  EXPECT_TRUE(why_bits_not_compared(trial_of_model(0)).empty());
  EXPECT_TRUE(why_bits_not_compared(trial_of_model(8)).empty());
  const auto adds_up = [](int64_t experts, const std::function<void(LayoutTrial&)>& change) {
    LayoutTrial trial = trial_of_model(experts);
    change(trial);
    return why_bits_not_compared(trial).empty();
  };
  EXPECT_TRUE(adds_up(8, [](LayoutTrial& t) { t.mesh = Mesh({.data = {2, 2}}); }));
  EXPECT_TRUE(
      adds_up(0, [](LayoutTrial& t) { t.shard.unit_options.gradients_wire = {WireFormat::bf16}; }));
  EXPECT_FALSE(adds_up(0, [](LayoutTrial& t) { t.mesh = Mesh({.tensor = 2, .data = {2}}); }));
  EXPECT_FALSE(adds_up(0, [](LayoutTrial& t) { t.mesh = Mesh({.context = 2, .data = {2}}); }));
  EXPECT_FALSE(adds_up(8, [](LayoutTrial& t) { t.mesh = Mesh({.data = {2}, .expert = 2}); }));
  EXPECT_FALSE(adds_up(8, [](LayoutTrial& t) { t.model.balance_coefficient = 0.01; }));
  EXPECT_FALSE(adds_up(8, [](LayoutTrial& t) { t.model.capacity_factor = 1.5; }));
}

/// The sums of gradients over the ranks, taken in bf16. In fp64 nothing is wrong with it.
void sum_in_bf16(StepPrograms& programs) {
  run_by(nodes_of(programs.update.program, "take_sum"),
         [](const Operation& sum, const Execution& execution) {
           const Tensor& gradient = execution.inputs[0];
           if (gradient.dtype() != DType::f32) return sum.run(execution);
           for (float& element : gradient.values<float>()) {
             element = static_cast<float>(BFloat16(element));
           }
           sum.run(execution);
         });
}

TEST(VerifyRounding, NamesAReductionOfGradientsThatIsTakenInBf16) {
  LayoutTrial trial = trial_of_model(8);
  trial.model.balance_coefficient = 0.01;
  trial.mesh = Mesh({.tensor = 2, .data = {2}, .expert = 2});
  const Verification right = verify(trial, 2);
  EXPECT_TRUE(right.passed()) << verification_text(right);
  EXPECT_GT(right.rounding.times, 0);
  EXPECT_THAT(verification_text(right), HasSubstr("bits were not compared: ranks that share a"));

  trial.change = sum_in_bf16;
  const Verification found = verify(trial, 2);
  EXPECT_TRUE(found.same()) << verification_text(found);
  EXPECT_FALSE(found.rounds_as_expected());
  EXPECT_FALSE(found.passed());
  EXPECT_EQ(found.rounding.deviation.quantity, "gradients");
  EXPECT_THAT(verification_text(found),
              AllOf(HasSubstr("ROUNDS MORE than it should: gradients, "),
                    HasSubstr("what is to be expected, where a mistake is over 10")));
  const auto json = nlohmann::json::parse(verification_json(found));
  EXPECT_EQ(json["passed"], false);
  EXPECT_EQ(json["same"], true);
  EXPECT_GT(json["largest_rounding"]["times_expected"], 10);
}

/// The rounding of bf16 hides the same mistake, but not from the bits.
TEST(VerifyRounding, InBf16TheBitsShowAReductionOfGradientsInBf16) {
  LayoutTrial trial = trial_of_model(0);
  trial.compute = DType::bf16;
  trial.change = sum_in_bf16;
  const Verification found = verify(trial, 1);
  EXPECT_TRUE(found.same());
  ASSERT_TRUE(found.bits);
  EXPECT_NE(*found.bits, "");
  EXPECT_FALSE(found.passed());
  EXPECT_THAT(verification_text(found),
              AllOf(HasSubstr("has OTHER BITS, first in the"), HasSubstr("NOT THE SAME BITS")));
}

/// Gradients that travel in bf16 round nothing but themselves: what follows is compared with one
/// rank that takes the same gradients.
TEST(VerifyRounding, OfGradientsThatTravelInBf16IsOfNothingElse) {
  LayoutTrial trial = trial_of_model(8);
  trial.mesh = Mesh();
  const auto batches = testing::random_batches(trial.size, 32, 2, 2, 3);
  const LayoutResults one = run_layout(trial, batches);
  trial.compute = DType::f64;
  trial.followed = one.gradients;
  const LayoutResults exact = run_layout(trial, batches);
  const auto times = [&](const std::function<void(LayoutResults&)>& change) {
    LayoutResults layout = one;
    change(layout);
    return largest_rounding(exact, one, layout, DType::f32, DType::bf16).times;
  };
  const auto number = [&](size_t step, double StepResults::*number) {
    return times([=](LayoutResults& layout) { layout.steps[step].results.*number *= 1 + 1e-3; });
  };
  for (const size_t step : {0U, 1U}) {
    EXPECT_GT(number(step, &StepResults::cross_entropy), Verification::kRoundingBound);
    EXPECT_GT(number(step, &StepResults::router_z), Verification::kRoundingBound);
    EXPECT_GT(number(step, &StepResults::gradient_norm), Verification::kRoundingBound);
  }
  const auto scaled = [](const Tensor& tensor) {
    Tensor result(tensor.shape(), tensor.dtype());
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      result.data<float>()[i] = 1.001f * tensor.data<float>()[i];
    }
    return result;
  };
  const std::string name = "layers.1.attention.key";
  EXPECT_LT(times([&](LayoutResults& layout) {
              Tensor& gradient = layout.gradients[1].at(name);
              gradient = scaled(gradient);
            }),
            1);
  EXPECT_GT(times([&](LayoutResults& layout) {
              Tensor& weight = layout.weights.at(name);
              weight = scaled(weight);
            }),
            Verification::kRoundingBound);
}

/// A weight that is far from f64 says nothing of the others. A gradient that is zero but for
/// rounding is compared with the others' numbers.
TEST(Deviations, OfEachTensorAreBoundedByItself) {
  const auto tensor = [](double number) {
    Tensor result(Shape{1}, DType::f64);
    result.values<double>()[0] = number;
    return result;
  };
  const auto results = [&](double noisy, double other, double zero) {
    LayoutResults made{.steps = {LayoutStep{}}, .gradients = {}, .weights = {}};
    made.gradients.push_back({{"large", tensor(1)}, {"zero", tensor(zero)}});
    made.weights = {{"noisy", tensor(noisy)}, {"other", tensor(other)}};
    return made;
  };
  const LayoutResults exact = results(1, 1, 0), one = results(1.5, 1 + 1e-7, 1e-17);
  const auto ratio = [&](const LayoutResults& layout) {
    return largest_rounding(exact, one, layout, DType::f32, DType::f32);
  };
  EXPECT_LT(ratio(results(1.2, 1, -3e-17)).times, 2);
  const RoundingRatio found = ratio(results(1.5, 1.001, 1e-17));
  EXPECT_GT(found.times, Verification::kRoundingBound);
  EXPECT_EQ(found.deviation.where, "other");
  for (const Deviation& deviation : deviations(one, results(1.5, 1 + 1e-7, -3e-17))) {
    EXPECT_LT(deviation.relative, Verification::kBound) << deviation.where;
  }
}

/// Ranks that share sequences drop other tokens than one rank does. One rank can take the parts of
/// data ranks by themselves.
TEST(VerifyCapacity, OfARanksTokensIsComparedWhereOneRankCanTakeThem) {
  LayoutTrial trial = trial_of_model(8);
  trial.model.capacity_factor = 1.1;
  trial.experts.capacity_tokens = TokenSet::rank;
  const Verification found = verify(trial, 2);
  EXPECT_TRUE(found.passed()) << verification_text(found);
  EXPECT_TRUE(found.bits);
  trial.mesh = Mesh({.tensor = 2, .data = {2}});
  EXPECT_THAT(error_of([&] { verify(trial, 1); }),
              AllOf(HasSubstr("parallel.capacity_tokens is \"rank\""),
                    HasSubstr("set it to \"micro_batch\"")));
}

/// In fp64 the first comparison is all.
TEST(VerifyRounding, IsNotJudgedInDoublePrecision) {
  LayoutTrial trial = trial_of_model(8);
  trial.compute = DType::f64;
  trial.mesh = Mesh({.tensor = 2, .data = {2}, .expert = 4});
  std::vector<std::string> parts;
  const Verification found =
      verify(trial, 2, [&](const std::string& part) { parts.push_back(part); });
  EXPECT_TRUE(found.passed()) << verification_text(found);
  EXPECT_TRUE(found.rounded.empty());
  EXPECT_THAT(parts, ::testing::ElementsAre("fp64, the layout", "fp64, one rank"));
}

TEST(VerifyMemory, IsThatOfAllRanksAndOfWhatIsCompared) {
  const LayoutTrial trial = trial_of_model(0);
  const VerifyMemory memory = verify_memory(trial, 2);
  const Chunk chunk = write_training(trial.model, DType::f64, trial.size, {});
  const int64_t parameters = chunk.outline.parameters.elements();
  EXPECT_EQ(memory.results, 4 * 8 * parameters);  // two gradients, and two kinds of weights
  EXPECT_GE(memory.states, 4 * 8 * parameters);   // weights, gradients and two moments
  EXPECT_GT(memory.one_rank, memory.states);
  EXPECT_GT(memory.layout, 4 * memory.states);
  EXPECT_GE(memory.bytes(), memory.layout + memory.results);
  EXPECT_NO_THROW(require_verify_memory(trial, 2, {.bytes = memory.bytes()}));
}

/// Neither the parts of the peak nor their sum are less than what is there at any time.
TEST(VerifyMemory, HasAPeakWhosePartsAddUp) {
  for (const VerifyMemory& memory : {VerifyMemory{.one_rank = 10, .layout = 20, .results = 3},
                                     {.one_rank = 50, .layout = 20, .results = 3},
                                     {.one_rank = 10, .layout = 20, .results = 3, .streams = 9},
                                     {.one_rank = 30, .layout = 20, .results = 3, .streams = 9}}) {
    const int64_t largest = std::max(memory.one_rank, memory.layout);
    EXPECT_EQ(memory.bytes(),
              std::max({memory.results + memory.layout, 2 * memory.results + memory.one_rank,
                        memory.streams > 0 ? memory.results + memory.streams + largest : 0}));
    const VerifyMemory peak = memory.peak();
    EXPECT_EQ(peak.one_rank + peak.layout + peak.results + peak.streams, memory.bytes());
  }
}

TEST(VerifyMemory, IsRefusedWithTheNumbersAndWhatToDo) {
  const LayoutTrial trial = trial_of_model(0);
  const auto refusal = [&](int64_t bytes) -> std::string {
    try {
      require_verify_memory(trial, 2, {.bytes = bytes});
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(
      refusal(verify_memory(trial, 2).bytes() - 1),
      AllOf(HasSubstr("this verification needs"), HasSubstr("for the 4 ranks of the layout"),
            HasSubstr("lower --steps (2), --context (16)")));
  EXPECT_THAT(refusal(1000), HasSubstr("only a smaller model helps (model.layers is 2)"));
  // The states of the layout do not fit, those of one rank do.
  const VerifyMemory memory = verify_memory(trial, 2);
  ASSERT_LT(memory.states + 2 * memory.results, memory.layout_states + memory.results);
  EXPECT_THAT(refusal(memory.layout_states + memory.results - 1), HasSubstr("only a smaller"));
  EXPECT_THAT(refusal(memory.layout_states + memory.results), HasSubstr("lower --steps (2)"));
}

TEST(VerifyMemory, OfAMachineWithoutTheFirstRankIsThatOfItsRanks) {
  const LayoutTrial trial = trial_of_model(0);
  const VerifyMemory memory = verify_memory(trial, 2, std::vector{1, 3});
  EXPECT_EQ(memory.one_rank + memory.states + memory.results + memory.streams, 0);
  EXPECT_EQ(memory.bytes(), memory.layout);
  EXPECT_GT(memory.layout, memory.layout_states);
  EXPECT_GT(memory.layout_states, 0);
}

}  // namespace
}  // namespace tessera
