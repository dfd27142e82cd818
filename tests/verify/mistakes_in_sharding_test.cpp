// Mistakes with state of which ranks keep pieces: a gather that is left out, a piece that is
// updated twice, a gradient that is summed twice or not at all. Programs that run something twice
// or not at all are refused where their memory is planned. If an operation itself does so, `verify`
// sees it.
#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/random_batches.h"
#include "support/tiny_mixture.h"
#include "verify/changed_programs.h"
#include "verify/differences.h"
#include "verify/verify.h"

namespace tessera {
namespace {

using testing::all_nodes;
using ::testing::AllOf;
using ::testing::Contains;
using testing::differences;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::nodes_of;
using testing::run_by;
using testing::where;

class MistakeInSharding : public ::testing::Test {
 protected:
  static inline const std::string kUnit = "layers.1/f32/tensor/matrices";
  using IsMeant = std::function<bool(const Program& program, const Node& node)>;

  MistakeInSharding() {
    trial_.model = testing::tiny_mixture(2);
    trial_.model.experts = trial_.model.experts_per_token = trial_.model.expert_size = 0;
    trial_.model.feed_forward_size = 8;
    trial_.size = {.sequences = 4, .context = 8};
    trial_.compute = DType::f32;
    trial_.shard.axes = {.weights = 3, .gradients = 3, .optimizer = 3};
  }

  static IsMeant is(std::string_view operation, const std::string& operand,
                    Phase phase = Phase::backward) {
    return [=](const Program& program, const Node& node) {
      const auto is_operand = [&](Value value) { return program.info(value).name == operand; };
      return node.operation->name() == operation && node.phase == phase &&
             (std::ranges::any_of(node.inputs, is_operand) ||
              std::ranges::any_of(node.outputs, is_operand));
    };
  }

  /// Returns the error of a run in which one node is changed in the programs of all ranks. `change`
  /// gets all nodes of its program, and the node.
  std::string error_of(const IsMeant& is_meant,
                       const std::function<void(std::vector<Node>& nodes,
                                                std::vector<Node>::iterator node)>& change) {
    trial_.change = [&](StepPrograms& programs) {
      int changed = 0;
      for (const Program* program : {&programs.chunks()[0].program, &programs.update.program}) {
        std::vector<Node>& nodes = all_nodes(*program);
        const auto node = std::ranges::find_if(
            nodes, [&](const Node& candidate) { return is_meant(*program, candidate); });
        if (node == nodes.end()) continue;
        change(nodes, node);
        ++changed;
      }
      EXPECT_EQ(changed, 1);
    };
    return error_of_run();
  }
  std::string error_without(const IsMeant& is_meant) {
    return error_of(is_meant, [](auto& nodes, auto node) { nodes.erase(node); });
  }
  std::string error_with_two(const IsMeant& is_meant) {
    return error_of(is_meant, [](auto& nodes, auto node) {
      const Node copy = *node;
      nodes.insert(std::next(node), copy);
    });
  }
  std::string error_of_run() {
    const TrialBatches batches{
        .whole = testing::random_batches(trial_.size, trial_.model.vocabulary_size, 2, 1, 3),
        .parts = {}};
    try {
      run_layout(trial_, batches);
    } catch (const InternalError& error) {
      return error.what();
    }
    return "no error";
  }

  /// Verifies programs in which a function runs an operation, if a node of this phase and layer has
  /// it.
  Verification verified_with(std::string_view operation, Phase phase, int layer,
                             const testing::ChangedOperation::Run& run) {
    trial_.change = [=](StepPrograms& programs) {
      const bool updates = phase == Phase::update;
      std::vector<Node*> nodes =
          nodes_of(updates ? programs.update.program : programs.chunks()[0].program, operation);
      std::erase_if(nodes,
                    [&](const Node* node) { return node->phase != phase || node->layer != layer; });
      ASSERT_FALSE(nodes.empty());
      run_by(nodes, run);
    };
    return verify(trial_, 1);
  }
  LayoutTrial trial_{.model = {}, .mesh = Mesh({.data = {2, 2}})};
};

TEST_F(MistakeInSharding, IsNoneToBeginWith) { EXPECT_EQ(error_of_run(), "no error"); }

TEST_F(MistakeInSharding, AGatherIsLeftOut) {
  EXPECT_THAT(error_without(is("gather_units", kUnit, Phase::forward)),
              AllOf(HasSubstr("rms_norm in the forward pass reads "),
                    HasSubstr("but no node before it computes 'whole:layers.1/f32'")));
  EXPECT_THAT(
      error_without(is("gather_units", kUnit, Phase::recompute)),
      AllOf(HasSubstr("linear_input_gradient in the backward pass reads "),
            HasSubstr("no node before it computes 'whole:layers.1/f32/tensor/matrices/again'")));
}

/// Weights that frames do not gather are gathered once a step.
TEST_F(MistakeInSharding, TheGatherOfAnUpdateIsLeftOutOrTooEarly) {
  const auto is_gather = is("gather_pieces", kUnit, Phase::update);
  const auto to_the_front = [](auto& nodes, auto node) {
    std::rotate(nodes.begin(), node, std::next(node));
  };
  for (const int cut_weights : {0, 2}) {
    trial_.shard.axes = {.weights = cut_weights, .gradients = cut_weights, .optimizer = 3};
    const auto is_named =
        AllOf(HasSubstr("the update changes a piece of '" + kUnit + "'"), HasSubstr("gathers it"));
    EXPECT_THAT(error_without(is_gather), is_named) << cut_weights;
    EXPECT_THAT(error_of(is_gather, to_the_front), is_named) << cut_weights;
  }
}

TEST_F(MistakeInSharding, AGatherOfSecondCopiesIsLeftOut) {
  trial_.shard.axes.secondary = 2;
  EXPECT_THAT(error_without(is("gather_copies", "secondary:" + kUnit, Phase::recompute)),
              HasSubstr("no node before it computes 'whole:layers.1/f32/tensor/matrices/again'"));
}

TEST_F(MistakeInSharding, AGatherComesAfterTheUnitsFirstUse) {
  EXPECT_THAT(error_of(is("gather_units", kUnit, Phase::forward),
                       [](auto& nodes, auto node) { std::rotate(node, node + 1, nodes.end()); }),
              HasSubstr("no node before it computes 'whole:layers.1/f32'"));
}

/// The memory of the unit holds what was there before.
TEST_F(MistakeInSharding, AGatherDoesNothing) {
  const auto nothing = [](const Operation&, const Execution&) {};
  const Verification forward = verified_with("gather_units", Phase::forward, 1, nothing);
  EXPECT_THAT(differences(forward), AllOf(Contains("loss"), Contains("gradients")));
  ASSERT_TRUE(forward.values && forward.values->first);
  EXPECT_EQ(forward.values->first->name, "layers.1 norm: rms_norm (forward), output 0");
  const Verification again = verified_with("gather_units", Phase::recompute, 1, nothing);
  EXPECT_THAT(differences(again), Contains("gradients"));
  EXPECT_THAT(where(again, "gradients"), HasSubstr("layers.1."));
}

TEST_F(MistakeInSharding, AGradientIsSummedTwice) {
  EXPECT_THAT(error_with_two(is("take_piece_of_sum", "frame_gradient:" + kUnit)),
              HasSubstr("take_piece_of_sum in the backward pass reads "
                        "'frame_gradient:layers.1/f32/tensor/matrices', "
                        "whose memory holds a sum over ranks by then"));
}

TEST_F(MistakeInSharding, AGradientIsNotSummed) {
  EXPECT_THAT(
      error_without(is("take_piece_of_sum", "frame_gradient:" + kUnit)),
      HasSubstr("no node before it sums 'frame_gradient:layers.1/f32/tensor/matrices' over ranks"));
  trial_.shard.axes = {.gradients = 2, .optimizer = 3};
  EXPECT_THAT(
      error_without(is("take_piece_of_sum", "gradient:" + kUnit, Phase::update)),
      HasSubstr("no node before it sums 'gradient:layers.1/f32/tensor/matrices' over ranks"));
}

/// Sums of a frame are pieces, which are added into the main gradient.
TEST_F(MistakeInSharding, ASumIsAddedTwiceOrNotAtAll) {
  EXPECT_THAT(error_with_two(is("accumulate", "gradient:" + kUnit)),
              HasSubstr("accumulate in the backward pass changes "
                        "'gradient:layers.1/f32/tensor/matrices' twice with the "
                        "same operands"));
  EXPECT_THAT(
      error_without(is("accumulate", "gradient:" + kUnit)),
      HasSubstr(
          "no node uses the sum of 'frame_gradient:layers.1/f32/tensor/matrices' over ranks"));
}

TEST_F(MistakeInSharding, APieceIsUpdatedByTwoNodes) {
  EXPECT_THAT(
      error_with_two(is("adamw", kUnit, Phase::update)),
      HasSubstr(
          "adamw in the update pass changes 'first_moment:embedding/f32/tensor' twice with the "
          "same operands"));
  // By other numbers.
  EXPECT_THAT(error_of(is("adamw", kUnit, Phase::update),
                       [](auto& nodes, auto node) {
                         Node copy = *node;
                         std::swap(copy.inputs[1], copy.inputs[2]);
                         nodes.insert(std::next(node), copy);
                       }),
              AllOf(HasSubstr("adamw in the update pass changes 'first_moment:"),
                    HasSubstr("which the update has changed before")));
}

/// All else about the unit is right: its gradient, its moments and the gather.
TEST_F(MistakeInSharding, APieceIsUpdatedInThePlaceOfAnother) {
  trial_.change = [](StepPrograms& programs) {
    const Program& update = programs.update.program;
    Value first;
    for (Node* node : nodes_of(update, "adamw")) {
      for (Value& input : node->inputs) {
        if (update.info(input).name == "layers.0/f32/tensor/matrices") first = input;
        if (update.info(input).name == kUnit) input = first;
      }
    }
  };
  EXPECT_THAT(
      error_of_run(),
      HasSubstr("adamw in the update pass changes 'layers.0/f32/tensor/matrices', which the "
                "update has changed before"));
}

TEST_F(MistakeInSharding, APieceIsUpdatedByTwoRanks) {
  const LayoutTrial without_change = trial_;
  trial_.change = [&](StepPrograms& programs) {
    if (programs.update.program.rank() == 3) programs = layout_programs(without_change, 2);
  };
  EXPECT_THAT(error_of_run(), HasSubstr("rank 3 runs a program that was written for rank 2"));
}

TEST_F(MistakeInSharding, AnUpdateRunsTwice) {
  const Verification found = verified_with("adamw", Phase::update, -1,
                                           [](const Operation& update, const Execution& execution) {
                                             update.run(execution);
                                             update.run(execution);
                                           });
  EXPECT_THAT(differences(found), ElementsAre("weights"));
}

}  // namespace
}  // namespace tessera
