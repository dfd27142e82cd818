// Mistakes that were found in systems that train in production, several of them after thousands of
// steps. Each is made here, and caught where a program is written, or else by what `verify`
// compares. Those that change a number of the real model's programs are in
// mistakes_in_programs_test.cpp; rows that are combined by the plan of another exchange are refused
// in tests/ops/moe_exchange_test.cpp.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/attention/attention.h"
#include "ops/attention/repeat_heads.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/loss/cross_entropy.h"
#include "ops/norm/norm.h"
#include "ops/router/losses.h"
#include "ops/update/sum_of_squares.h"
#include "support/random_batches.h"
#include "support/tiny_mixture.h"
#include "verify/verify.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A program in which a mistake is made.
class Mistake : public ::testing::Test {
 protected:
  Mistake()
      : program_(Mesh({.tensor = 2, .context = 2, .data = {2}, .expert = 2})),
        builder_(program_),
        t_(mesh().tensor()),
        c_(mesh().context()),
        d_(mesh().data()[0]),
        e_(mesh().expert()),
        x_(mesh().expert_data()[0]) {}

  const Mesh& mesh() const { return program_.mesh(); }
  Value input(const std::string& name, const Shape& shape, const Distribution& lies = {}) {
    return builder_.input(name, {shape, DType::f64, lies});
  }
  Distribution on(Axis axis, const TypeOnAxis& type) const {
    return Distribution(mesh().info(axis).view).with(axis, type);
  }
  Value sum_of(Value value, Axis axis) {
    return convert(builder_, value, axis, Placement::partial, invariant());
  }

  template <typename Make>
  static std::string refusal(Make&& make) {
    try {
      make();
    } catch (const DistributionError& error) {
      return error.what();
    }
    return "accepted";
  }

  Program program_;
  Builder builder_;
  const Axis t_, c_, d_, e_, x_;
};

TEST_F(Mistake, LogitsAreGatheredAndTheirLossIsSummedAsWell) {
  const Value hidden = input("hidden", {8, 4}, on(t_, replicated()));
  const Value head = input("head", {6, 4}, on(t_, sharded(0)));
  const Value whole = convert(builder_, head, t_, Placement::sharded, replicated());
  const Value targets = builder_.input("targets", {{8}, DType::i32, {}});
  const Value loss = linear_cross_entropy(builder_, hidden, whole, targets).loss;
  EXPECT_THAT(refusal([&] { sum_of(loss, t_); }),
              AllOf(HasSubstr("partial -> invariant on tensor"), HasSubstr("is replicated")));
}

TEST_F(Mistake, TheWeightOfANormIsNotRetyped) {
  const Value x = input("x", {8, 4}, on(t_, sharded(0)));
  const Value weight = builder_.parameter("weight", {{4}, DType::f64, {}});
  EXPECT_THAT(refusal([&] { norm(builder_, x, weight, {}); }),
              AllOf(HasSubstr("'weight' is invariant on tensor"), HasSubstr("replicated")));
}

TEST_F(Mistake, TheGradientOfANormsWeightIsNotSummed) {
  const Value gradient = input("gradient", {4}, on(t_, partial()));
  const std::vector<Value> gradients{gradient};
  EXPECT_THAT(refusal([&] {
                sum_of_squares(builder_, gradients, {{0, 0, 4}});
              }),
              AllOf(HasSubstr("'gradient' is partial on tensor"), HasSubstr("not linear")));
}

TEST_F(Mistake, GradientsOfExpertsAreSummedOverTheWrongRanks) {
  const Value gradient = input("experts", {4}, on(e_, sharded(0)).with(x_, partial()));
  EXPECT_THAT(refusal([&] { sum_of(gradient, e_); }),
              AllOf(HasSubstr("on expert"), HasSubstr("is sharded"), HasSubstr("partial")));
  EXPECT_THAT(refusal([&] { sum_of(gradient, t_); }),
              AllOf(HasSubstr("on tensor"), HasSubstr("other view")));
}

TEST_F(Mistake, ReplicasAreCountedTwiceInTheNorm) {
  const Value gradient = input("gradient", {4});
  const std::vector<Value> gradients{gradient};
  const Value squares = sum_of_squares(builder_, gradients, {{0, 0, 4}});
  EXPECT_THAT(refusal([&] { sum_of(squares, d_); }),
              AllOf(HasSubstr("on data"), HasSubstr("is invariant")));
}

TEST_F(Mistake, TheNormOfWhatIsSplitIsNotSummed) {
  const Value split = input("split", {4}, on(t_, sharded(0, {.kind = PieceKind::flat})));
  const Value whole = input("whole", {4});
  const auto squares = [&](Value value) {
    return sum_of_squares(builder_, std::vector{value}, {{0, 0, 4}});
  };
  const Value of_split = squares(split), of_whole = squares(whole);
  EXPECT_THAT(refusal([&] {
                add(builder_, std::vector{of_whole, of_split}, DType::f64);
              }),
              AllOf(HasSubstr("invariant on tensor"), HasSubstr("is partial")));
}

TEST_F(Mistake, ASumOfTheZLossIsTakenTwiceOrNotAtAll) {
  const Value logits = input("logits", {8, 4}, on(t_, sharded(0)));
  const Value loss = router_z_loss(builder_, logits, 0.1);
  const Value whole = sum_of(loss, t_);
  EXPECT_THAT(refusal([&] { sum_of(whole, t_); }),
              AllOf(HasSubstr("on tensor"), HasSubstr("is invariant")));
  const Value other = input("other", {1});
  EXPECT_THAT(refusal([&] {
                add(builder_, std::vector{other, loss}, DType::f64);
              }),
              AllOf(HasSubstr("invariant on tensor"), HasSubstr("is partial")));
}

TEST_F(Mistake, ASumOfTheBalanceLossIsTakenTwiceOrNotAtAll) {
  const Value probabilities = input("probabilities", {8, 4}, on(c_, sharded(0)));
  const auto counts_on = [&](const std::string& name, const TypeOnAxis& type) {
    return std::vector{builder_.input(name, {{4}, DType::i32, on(c_, type)})};
  };
  const auto loss = [&](const std::vector<Value>& counts) {
    return load_balance_loss(builder_, std::vector{probabilities}, counts, 0.1, 2,
                             BalanceForm::per_layer);
  };
  EXPECT_THAT(refusal([&] { loss(counts_on("own", partial())); }),
              AllOf(HasSubstr("load_balance_loss"), HasSubstr("on context"),
                    HasSubstr("'own', which is partial")));
  const Value whole = loss(counts_on("all", invariant()));
  EXPECT_THAT(refusal([&] { sum_of(whole, c_); }),
              AllOf(HasSubstr("on context"), HasSubstr("is invariant")));
}

/// The targets that a rank counts among its own are an addend of their number. The squares of a
/// mask of ones and zeros count them.
TEST_F(Mistake, ALossIsDividedByARanksOwnCountOfTargets) {
  const Value hidden = input("hidden", {8, 4}, on(c_, sharded(0)));
  const Value weight = input("weight", {6, 4}, on(c_, replicated()));
  const Value targets = builder_.input("targets", {{8}, DType::i32, on(c_, sharded(0))});
  const Value has_target = input("has_target", {8}, on(c_, sharded(0)));
  const Value own = sum_of_squares(builder_, std::vector{has_target}, {{0, 0, 8}});
  const auto loss = [&](Value seed) {
    return linear_cross_entropy_with_gradient(builder_, hidden, weight, targets, seed, 0);
  };
  EXPECT_THAT(refusal([&] { loss(own); }),
              AllOf(HasSubstr("is partial on context"), HasSubstr("replicated")));
  EXPECT_EQ(refusal([&] { loss(convert(builder_, own, c_, Placement::partial, replicated())); }),
            "accepted");
}

TEST_F(Mistake, AKeyThatHeadsShareIsExpandedWithoutItsPeersGradients) {
  const Value query = input("query", {8, 8}, on(t_, sharded(1)));
  const Value key = input("key", {8, 4});
  const Value expanded = repeat_heads(builder_, key, 4, 1);
  EXPECT_THAT(refusal([&] {
                attention(builder_, query, expanded, expanded,
                          {.sequence = 8, .heads = 2, .kv_heads = 1, .head_dim = 4});
              }),
              AllOf(HasSubstr("invariant on tensor"), HasSubstr("replicated")));
}

/// What no type can see is compared with one rank.
class MistakeInNumbers : public ::testing::Test {
 protected:
  MistakeInNumbers() {
    trial_.model = testing::tiny_mixture(1);
    trial_.model.router_z_coefficient = 0.05;
    trial_.size = {.sequences = 4, .context = 8};
    batches_ = testing::random_batches(trial_.size, 16, 2, 1, 3);
    one_ = run_layout(trial_, batches_);
    trial_.mesh = Mesh({.data = {2}, .expert = 2});
  }

  /// The quantities that differ.
  std::vector<std::string> differences(const LayoutResults& found) const {
    std::vector<std::string> names;
    for (const Deviation& deviation : deviations(one_, found)) {
      if (deviation.relative > Verification::kBound) names.push_back(deviation.quantity);
    }
    return names;
  }

  LayoutTrial trial_{.model = {}, .mesh = {}};
  std::vector<std::vector<Batch>> batches_;
  LayoutResults one_;
};

TEST_F(MistakeInNumbers, IsNoneToBeginWith) {
  EXPECT_THAT(differences(run_layout(trial_, batches_)), ::testing::IsEmpty());
}

TEST_F(MistakeInNumbers, TheZLossIsDoubled) {
  trial_.model.router_z_coefficient *= 2;
  EXPECT_THAT(differences(run_layout(trial_, batches_)),
              ::testing::IsSupersetOf({"router z-loss", "gradient norm", "gradients"}));
}

TEST_F(MistakeInNumbers, UpdatesAreSmallerThanTheirGradientsSay) {
  trial_.optimizer.learning_rate /= 2;
  trial_.optimizer.minimum_learning_rate /= 2;
  const StepBatches first{batches_[0]};
  trial_.mesh = Mesh();
  one_ = run_layout({.model = trial_.model, .size = trial_.size, .mesh = {}}, first);
  trial_.mesh = Mesh({.data = {2}, .expert = 2});
  EXPECT_THAT(differences(run_layout(trial_, first)), ::testing::ElementsAre("weights"));
}

TEST_F(MistakeInNumbers, TokensChooseExpertsDifferently) {
  trial_.model.forced_uniform_routing = true;
  EXPECT_THAT(differences(run_layout(trial_, batches_)), ::testing::Contains("router counts"));
}

}  // namespace
}  // namespace tessera
