// Mistakes that hide where a run rounds, where it is long, or before its programs begin: each is
// made here in the weights that are sent, in the wire, in late positions or in what a loader gives,
// and `verify` has to see it.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/usable_memory.h"
#include "support/error_of.h"
#include "support/tiny_mixture.h"
#include "verify/changed_programs.h"
#include "verify/trial_batches.h"
#include "verify/verify.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::nodes_of;
using testing::run_by;

class UnseenMistake : public ::testing::Test {
 protected:
  UnseenMistake() {
    config_.model = testing::tiny_mixture(1);
    config_.model.experts = config_.model.experts_per_token = config_.model.expert_size = 0;
    config_.model.feed_forward_size = 8;
    config_.run.threads = 1;
    config_.data.context = 8;
    config_.train.micro_batch = 2;
    config_.train.precision = Precision::bf16;
    config_.optimizer.learning_rate = config_.optimizer.minimum_learning_rate = 0.05;
    config_.optimizer.warmup_steps = 0;
  }

  /// The trial that `verify` makes of the configuration.
  LayoutTrial trial() const {
    const std::vector<TrialSize> sizes = trial_sizes(config_, mesh_, 0);
    return trial_of(config_, mesh_,
                    sizes[first_that_fits(config_, mesh_, sizes, 1, usable_memory().bytes)]);
  }
  /// Verifies with batches that a change made wrong for each rank.
  static Verification with_parts(const LayoutTrial& trial,
                                 const std::function<void(Batch&)>& change) {
    TrialBatches batches = loader_batches(trial, 1, 1);
    for (StepBatches& part : batches.parts) change(part[0][0]);
    return verify(trial, batches);
  }

  RunConfig config_;
  Mesh mesh_{{.data = {2}}};
};

TEST_F(UnseenMistake, IsNoneToBeginWith) {
  config_.data.context = 72;
  config_.train.micro_batch = 3;
  config_.shard.optimizer = {"all"};
  const Verification found = with_parts(trial(), [](Batch&) {});
  EXPECT_TRUE(found.passed()) << verification_text(found);
  EXPECT_GT(found.gradient_bytes.counted, 0);
}

/// Masters are right, and bf16 hides what the next step makes of the old weights. A rank that has
/// gathered nothing has other copies than the owner.
TEST_F(UnseenMistake, WeightsAreNotGatheredAfterAnUpdate) {
  config_.shard.optimizer = {"all"};
  LayoutTrial tried = trial();
  tried.change = [](StepPrograms& programs) {
    run_by(nodes_of(programs.update.program, "gather_pieces"),
           [](const Operation& gather, const Execution& execution) {
             if (execution.inputs[1].dtype() != DType::bf16) gather.run(execution);
           });
  };
  const Verification found = verify(tried, 1);
  EXPECT_TRUE(found.same()) << verification_text(found);
  EXPECT_FALSE(found.passed());
  EXPECT_THAT(verification_text(found),
              AllOf(HasSubstr("ranks that hold the same piece of computed weight "),
                    HasSubstr("have OTHER COPIES of what they should hold alike")));
  const auto json = nlohmann::json::parse(verification_json(found));
  EXPECT_EQ(json["passed"], false);
  EXPECT_THAT(json["other_copies"].get<std::string>(), HasSubstr("hold different numbers"));
}

TEST_F(UnseenMistake, MastersAreNotRoundedToWeightsAfterAnUpdate) {
  LayoutTrial tried = trial();
  tried.change = [](StepPrograms& programs) {
    run_by(nodes_of(programs.update.program, "adamw"),
           [](const Operation& update, const Execution& execution) {
             std::vector<Tensor> kept;
             for (const Tensor& input : execution.inputs) {
               kept.emplace_back(input.shape(), input.dtype()).copy_from(input);
             }
             update.run(execution);
             for (size_t i = 0; i < kept.size(); ++i) {
               if (kept[i].dtype() == DType::bf16) execution.inputs[i].copy_from(kept[i]);
             }
           });
  };
  const Verification found = verify(tried, 1);
  EXPECT_TRUE(found.same() && found.rounds_as_expected()) << verification_text(found);
  EXPECT_FALSE(found.passed());
  EXPECT_THAT(verification_text(found), HasSubstr("computes with OTHER WEIGHTS than it updates: "));
}

/// A sum in bf16 is within the rounding of a run in bf16. Where ranks share a model, no bits say
/// so.
TEST_F(UnseenMistake, GradientsTravelInBf16WhereNobodySaidSo) {
  mesh_ = Mesh({.tensor = 2, .data = {2}});
  for (const char* over : {"none", "all"}) {
    config_.shard.optimizer = {over};
    LayoutTrial tried = trial();
    EXPECT_TRUE(verify(tried, 1).passed());
    tried.change = [&](StepPrograms& programs) {
      const Chunk& chunk = programs.chunks().front();
      const Program& before = programs.update.program;
      programs.update = write_update(
          chunk.outline.parameters.units(), chunk.outline.parameters.specs(),
          chunk.outline.sums.all(), tried.optimizer, {before.mesh(), before.rank()},
          {.axes = tried.shard.axes, .unit_options = {.gradients_wire = {WireFormat::bf16}}});
    };
    const Verification found = verify(tried, 1);
    EXPECT_TRUE(found.same() && found.rounds_as_expected()) << verification_text(found);
    EXPECT_FALSE(found.passed());
    // Pieces that two ranks share are gathered in fp32.
    const double saved = found.gradient_bytes.expected - found.gradient_bytes.counted;
    if (std::string_view(over) == "none") {
      EXPECT_DOUBLE_EQ(saved, found.gradient_bytes.expected / 2);
    }
    EXPECT_GT(saved, found.gradient_bytes.expected / 3);
    EXPECT_THAT(verification_text(found), HasSubstr("sends OTHER BYTES than it should"));
  }
}

/// The run in fp64 comes first, and the one in the run's precision sends what it should.
TEST_F(UnseenMistake, GradientsAreSentTwiceInFp64Alone) {
  LayoutTrial tried = trial();
  tried.change = [](StepPrograms& programs) {
    run_by(nodes_of(programs.update.program, "take_sum"),
           [](const Operation& sum, const Execution& execution) {
             const Tensor& gradient = execution.inputs[0];
             const Tensor kept(gradient.shape(), gradient.dtype());
             kept.copy_from(gradient);
             sum.run(execution);
             if (gradient.dtype() != DType::f64) return;
             gradient.copy_from(kept);
             sum.run(execution);
           });
  };
  const Verification found = verify(tried, 1);
  EXPECT_TRUE(found.same() && found.rounds_as_expected()) << verification_text(found);
  EXPECT_FALSE(found.passed());
  EXPECT_THAT(verification_text(found), HasSubstr("sends OTHER BYTES than it should"));
}

TEST_F(UnseenMistake, PositionsFrom64OnAreTurnedWrongly) {
  config_.data.context = 72;
  config_.train.precision = Precision::fp32;
  LayoutTrial tried = trial();
  ASSERT_EQ(tried.size.context, 72);
  tried.change = [](StepPrograms& programs) {
    run_by(nodes_of(programs.chunks()[0].program, "rotary_table"),
           [](const Operation& table, const Execution& execution) {
             table.run(execution);
             const Tensor& angles = execution.outputs[0];
             if (angles.dtype() != DType::f64) return;
             const auto positions = execution.inputs[0].values<int32_t>();
             const int64_t channels = angles.elements() / std::ssize(positions);
             for (int64_t i = 0; i < angles.elements(); ++i) {
               const bool late = positions[static_cast<size_t>(i / channels)] >= 64;
               if (late) angles.values<double>()[static_cast<size_t>(i)] *= 1.01;
             }
           });
  };
  EXPECT_FALSE(verify(tried, 1).same());
}

TEST_F(UnseenMistake, DocumentsOfTheThirdSequenceAreLost) {
  config_.train.micro_batch = 3;
  const Verification found = with_parts(trial(), [](Batch& batch) {
    ASSERT_EQ(batch.rows, 3);
    std::fill(batch.document_starts.begin() + 2 * batch.context, batch.document_starts.end(), 0);
  });
  EXPECT_FALSE(found.same());
}

TEST_F(UnseenMistake, ALoaderCountsTheTargetsOfItsRank) {
  const auto count = [](Batch& batch) {
    batch.target_count = std::ranges::count_if(batch.targets, [](int32_t t) { return t >= 0; });
  };
  const Verification found = with_parts(trial(), count);
  EXPECT_FALSE(found.passed());
  EXPECT_THAT(found.unequal_results.value_or(""),
              HasSubstr("targets of step 1, which must be those of all ranks"));
}

/// Each rank has a loader of its own, also those that share sequences.
TEST_F(UnseenMistake, ALoaderGivesOneOfTwoTensorRanksAnotherToken) {
  mesh_ = Mesh({.tensor = 2, .data = {2}});
  const LayoutTrial tried = trial();
  const TrialBatches right = loader_batches(tried, 2, 1);
  ASSERT_EQ(right.parts.size(), 4U);
  EXPECT_TRUE(verify(tried, right).passed());
  for (const int rank : {1, 3}) {
    TrialBatches wrong = right;
    wrong.parts[static_cast<size_t>(rank)][1][0].tokens[2] ^= 1;
    EXPECT_THAT(error_of([&] { verify(tried, wrong); }),
                HasSubstr(fmt::format("the loader of rank {} gives other batches than that of rank "
                                      "{}, first in step 2",
                                      rank, rank - 1)));
  }
}

}  // namespace
}  // namespace tessera
