// Mistakes of others (see mistakes_test.cpp) that no type can see, because the number is wrong and
// not its place. Each changes one thing in the programs of the real model, and `verify` has to see
// it.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/random_batches.h"
#include "support/tiny_mixture.h"
#include "verify/changed_programs.h"
#include "verify/differences.h"
#include "verify/verify.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using testing::copied;
using testing::differences;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::nodes_of;
using ::testing::Not;
using testing::run_by;
using testing::where;

class MistakeInPrograms : public ::testing::Test {
 protected:
  MistakeInPrograms() {
    trial_.model = testing::tiny_mixture(2);
    trial_.model.balance_coefficient = 0.02;
    trial_.size = {.sequences = 4, .context = 8};
    trial_.compute = DType::f32;
    trial_.experts.exchange = ExpertExchange::all_to_all;
  }

  /// The quantities that differ if only these targets count.
  std::vector<std::string> differences_with_targets(
      const std::function<bool(size_t token)>& counts) {
    auto batches = testing::random_batches(trial_.size, trial_.model.vocabulary_size, 1, 1, 3);
    Batch& batch = batches[0][0];
    for (size_t t = 0; t < batch.targets.size(); ++t) batch.targets[t] = counts(t) ? 1 : -1;
    batch.target_count = std::ranges::count(batch.targets, 1);
    LayoutTrial one = trial_;
    one.mesh = Mesh();
    one.compute = trial_.compute = DType::f64;
    return differences(
        {.trial = trial_,
         .exact = deviations(run_layout(one, batches), run_layout(trial_, batches))});
  }

  LayoutTrial trial_{.model = {}, .mesh = Mesh({.context = 2, .data = {2}, .expert = 2})};
};

TEST_F(MistakeInPrograms, IsNoneToBeginWith) {
  const Verification found = verify(trial_, 2);
  EXPECT_TRUE(found.passed()) << verification_text(found);
}

TEST_F(MistakeInPrograms, GradientsOfExpertsAreMultipliedByTheirRanks) {
  trial_.change = [](StepPrograms& programs) {
    run_by(nodes_of(programs.chunks()[0].program, "grouped_linear_weight_gradient"),
           [](const Operation& product, const Execution& execution) {
             const Tensor& sum = execution.inputs.back();
             if (sum.dtype() != DType::f64) return product.run(execution);
             const std::vector<double> before = copied<double>(sum);
             product.run(execution);
             for (size_t i = 0; i < before.size(); ++i) {
               double& element = sum.values<double>()[i];
               element = before[i] + 2 * (element - before[i]);
             }
           });
  };
  const Verification found = verify(trial_, 1);
  EXPECT_THAT(differences(found), ElementsAre("gradients"));
  EXPECT_THAT(where(found, "gradients"), HasSubstr(".experts."));
}

TEST_F(MistakeInPrograms, TheNormForgetsTheExperts) {
  trial_.change = [](StepPrograms& programs) {
    const Program& update = programs.update.program;
    std::vector<Node*> of_experts = nodes_of(update, "sum_of_squares");
    std::erase_if(of_experts, [&](const Node* node) {
      return update.spec(node->outputs[0]).distribution.view() == MeshView::dense;
    });
    EXPECT_FALSE(of_experts.empty());
    run_by(of_experts,
           [](const Operation&, const Execution& execution) { execution.outputs[0].fill_zero(); });
  };
  const Verification found = verify(trial_, 1);
  EXPECT_FALSE(found.same());
  EXPECT_THAT(differences(found), AllOf(Contains("gradient norm"), Not(Contains("gradients"))));
}

TEST_F(MistakeInPrograms, TheBalanceLossIsMultipliedByTheRanksOfContext) {
  trial_.change = [](StepPrograms& programs) {
    for (const char* operation : {"load_balance_loss", "load_balance_gradient"}) {
      run_by(nodes_of(programs.chunks()[0].program, operation),
             [](const Operation& loss, const Execution& execution) {
               loss.run(execution);
               if (execution.outputs[0].dtype() != DType::f64) return;
               for (double& element : execution.outputs[0].values<double>()) element *= 2;
             });
    }
  };
  const Verification found = verify(trial_, 1);
  EXPECT_THAT(differences(found),
              AllOf(Contains("balance loss"), Contains("gradients"), Not(Contains("loss"))));
  ASSERT_TRUE(found.values && found.values->first);
  EXPECT_EQ(found.values->first->name, "router: load_balance_loss (forward), output 0");
}

/// Takes the loss's gradient, one over the number of targets, from a rank's own targets. It is
/// declared invariant, and is another number on each rank. A seed that is not finite makes all that
/// the loss gives so, as a mean over nothing.
void use_own_targets(StepPrograms& programs, const std::function<double(int64_t own)>& seed) {
  run_by(nodes_of(programs.chunks()[0].program, "linear_cross_entropy"),
         [=](const Operation& loss, const Execution& execution) {
           const auto targets = execution.inputs[2].values<int32_t>();
           const int64_t own = std::ranges::count_if(targets, [](int32_t t) { return t >= 0; });
           std::vector<Tensor> inputs(execution.inputs.begin(), execution.inputs.end());
           inputs[3] = Tensor({1}, DType::f64);
           inputs[3].values<double>()[0] = seed(own);
           loss.run({.runtime = execution.runtime,
                     .inputs = inputs,
                     .outputs = execution.outputs,
                     .workspace = execution.workspace,
                     .name = execution.name});
           if (std::isfinite(seed(own))) return;
           for (const Tensor& output : execution.outputs) {
             if (output.dtype() == DType::f64)
               std::ranges::fill(output.values<double>(), seed(own));
           }
         });
}

/// Four ranks, of which one has the only target.
TEST_F(MistakeInPrograms, TheCountOfTargetsIsAveragedOverRanksThatHaveTheirOwn) {
  const auto one_target = [](size_t token) { return token == 3; };
  EXPECT_THAT(differences_with_targets(one_target), IsEmpty());
  trial_.change = [](StepPrograms& programs) {
    use_own_targets(programs, [](int64_t own) {
      return 1 / static_cast<double>(4 * std::max<int64_t>(own, 1));
    });
  };
  EXPECT_THAT(differences_with_targets(one_target),
              ElementsAre("gradient norm", "gradients", "weights"));
}

TEST_F(MistakeInPrograms, ARankWhoseTargetsAreAllLeftOutDividesByNone) {
  const auto first_sequences = [](size_t token) { return token < 16; };  // of the first data rank
  EXPECT_THAT(differences_with_targets(first_sequences), IsEmpty());
  trial_.change = [](StepPrograms& programs) {
    use_own_targets(programs, [](int64_t own) {
      return own > 0 ? 1 / static_cast<double>(own) : std::numeric_limits<double>::quiet_NaN();
    });
  };
  EXPECT_THAT(differences_with_targets(first_sequences), Contains("gradient norm"));
}

TEST_F(MistakeInPrograms, AWeightThatIsCalledInvariantDiffersByRank) {
  trial_.compute = DType::f64;
  trial_.change = [](StepPrograms& programs) {
    if (programs.update.program.rank() != 1) return;
    run_by(nodes_of(programs.update.program, "adamw"),
           [](const Operation& update, const Execution& execution) {
             update.run(execution);
             for (const int changed : update.updated_inputs()) {
               execution.inputs[static_cast<size_t>(changed)].values<double>()[0] += 1e-3;
             }
           });
  };
  const Verification found = verify(trial_, 1);
  EXPECT_FALSE(found.passed());
  EXPECT_THAT(found.unequal_copies.value_or(""),
              AllOf(HasSubstr("ranks that hold the same piece of "),
                    HasSubstr("hold different numbers at element 0")));
}

/// Ranks that report the same NaN do not disagree.
TEST_F(MistakeInPrograms, ALossThatIsNoNumberOnAllRanks) {
  trial_.compute = DType::f64;
  trial_.change = [](StepPrograms& programs) {
    use_own_targets(programs, [](int64_t) { return std::numeric_limits<double>::quiet_NaN(); });
  };
  const Verification found = verify(trial_, 2);
  EXPECT_FALSE(found.same());
  EXPECT_EQ(found.unequal_results, std::nullopt);
}

TEST_F(MistakeInPrograms, ALossThatIsOfAllRanksDiffersByRank) {
  trial_.compute = DType::f64;
  trial_.change = [](StepPrograms& programs) { testing::add_to_loss_of(1, programs); };
  const Verification found = verify(trial_, 2);
  EXPECT_FALSE(found.passed());
  EXPECT_EQ(found.unequal_results, "ranks report different results of step 1");
  EXPECT_THAT(verification_text(found), HasSubstr("report OTHER RESULTS"));
  const auto json = nlohmann::json::parse(verification_json(found));
  EXPECT_EQ(json.at("other_results"), "ranks report different results of step 1");
  EXPECT_FALSE(json.at("passed"));
}

TEST_F(MistakeInPrograms, CountsOfARouterAreOverwrittenByTheNextMicroBatch) {
  trial_.change = [](StepPrograms& programs) {
    run_by(nodes_of(programs.chunks()[0].program, "running_sum"),
           [](const Operation& add, const Execution& execution) {
             const Tensor& sum = execution.inputs[0];
             if (sum.elements() > 1) std::ranges::fill(sum.values<double>(), 0.0);
             add.run(execution);
           });
  };
  const Verification found = verify(trial_, 1);
  EXPECT_THAT(differences(found), ElementsAre("router counts"));
  EXPECT_THAT(where(found, "router counts"), HasSubstr("mixture layer"));
}

/// Gives an operation of the second layer the indices and counts of the first one's. Types tell
/// the rows of two layers apart, so the change comes behind them.
void use_plan_of_first_layer(const Program& program, const char* operation) {
  const std::vector<Node*> nodes = nodes_of(program, operation);
  const auto first = std::ranges::find(nodes, 0, &Node::layer);
  ASSERT_NE(first, nodes.end());
  int changed = 0;
  for (Node* node : nodes) {
    if (node->layer != 1) continue;
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      if (program.spec(node->inputs[i]).dtype != DType::i32) continue;
      node->inputs[i] = (*first)->inputs[i];
      ++changed;
    }
  }
  EXPECT_GT(changed, 0);
}

TEST_F(MistakeInPrograms, RowsAreExchangedByThePlanOfAnotherLayer) {
  trial_.change = [](StepPrograms& programs) {
    for (const char* operation : {"exchange_rows", "return_rows"}) {
      use_plan_of_first_layer(programs.chunks()[0].program, operation);
    }
  };
  const Verification found = verify(trial_, 1);
  EXPECT_THAT(differences(found), AllOf(Contains("loss"), Contains("gradients")));
  ASSERT_TRUE(found.values && found.values->first);
  EXPECT_THAT(found.values->first->name, HasSubstr("layers.1 experts: reduce_experts (forward)"));
}

TEST_F(MistakeInPrograms, RowsAreCombinedByTheIndicesOfAnotherLayer) {
  trial_.change = [](StepPrograms& programs) {
    use_plan_of_first_layer(programs.chunks()[0].program, "reduce_experts");
  };
  const Verification found = verify(trial_, 1);
  EXPECT_THAT(differences(found), AllOf(Contains("loss"), Contains("gradients")));
  ASSERT_TRUE(found.values && found.values->first);
  EXPECT_THAT(found.values->first->name, HasSubstr("layers.1 experts: reduce_experts (forward)"));
}

/// Ranks that drop choices beyond the capacity among their own tokens: one rank divides the tokens
/// for that. The search for the first value that differs finds the mistake, and not the dropping.
TEST_F(MistakeInPrograms, OneAfterDroppingByOwnTokensIsFoundInItsPlace) {
  trial_.mesh = Mesh({.data = {4}, .expert = 2});
  trial_.model.balance_tokens = BalanceTokens::rank;
  trial_.model.capacity_factor = 1;
  trial_.experts.capacity_tokens = TokenSet::rank;
  const Verification right = verify(trial_, 1);
  EXPECT_TRUE(right.passed()) << verification_text(right);
  trial_.change = [](StepPrograms& programs) {
    run_by({nodes_of(programs.chunks()[0].program, "reduce_experts").back()},
           [](const Operation& sum, const Execution& execution) {
             sum.run(execution);
             if (execution.outputs[0].dtype() != DType::f64) return;
             for (double& element : execution.outputs[0].values<double>()) element *= 1.01;
           });
  };
  const Verification found = verify(trial_, 1);
  EXPECT_THAT(differences(found), AllOf(Contains("loss"), Contains("gradients")));
  ASSERT_TRUE(found.values && found.values->first);
  EXPECT_THAT(found.values->first->name, HasSubstr("layers.1 experts: reduce_experts (forward)"));
}

}  // namespace
}  // namespace tessera
