#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/words.h"
#include "comm/in_process/run_mesh.h"
#include "engine/executor.h"
#include "ops/host_target.h"
#include "plan/programs.h"
#include "state/parameter_store.h"
#include "support/random_batches.h"
#include "train/training_step.h"
#include "verify/layout_run.h"

namespace tessera::testing {

/// What the ranks of a mesh got from each other in one node of a step.
struct CountedNode {
  const Program* program = nullptr;  ///< of the first rank
  const Node* node = nullptr;
  std::vector<int64_t> received;  ///< bytes by rank, as the transports counted
  double cost = 0;                ///< bytes of all ranks, as the operations say
  /// Those that came over the axes that its operation names, of all ranks.
  std::map<std::vector<Axis>, int64_t> received_by_axes;

  double received_over(const std::vector<Axis>& axes) const {
    const auto found = received_by_axes.find(axes);
    return found == received_by_axes.end() ? 0 : static_cast<double>(found->second);
  }
  int64_t received_by_all() const {
    return std::accumulate(received.begin(), received.end(), int64_t{0});
  }
};

/// The axes over which a node's operation says that ranks meet; none if they do not.
inline std::vector<Axis> axes_of(const CountedNode& counted) {
  const Node& node = *counted.node;
  const Program& program = *counted.program;
  const Cost cost = node.operation->cost(program.specs(node.inputs), program.specs(node.outputs));
  EXPECT_LE(cost.wire.size(), 1U) << node.operation->name();
  return cost.wire.empty() ? std::vector<Axis>() : cost.wire[0].axes;
}

/// One optimizer step of a trial, run on every rank of its mesh by what runs it in training. All
/// bytes that the ranks take from each other are counted by the transports, node by node.
class CountedStep {
 public:
  /// Expects that the ranks run the same nodes, and that nothing comes over axes which the nodes do
  /// not name.
  explicit CountedStep(const LayoutTrial& trial) : trial_(trial), ranks_(count(trial.mesh)) {
    const auto steps = testing::random_batches(trial.size, trial.model.vocabulary_size, 1, 1, 3);
    World world(trial.mesh.ranks());
    run_mesh(world, trial.mesh, [&](RankGroups& groups) { run(groups, steps[0]); });
    join();
  }

  const std::vector<CountedNode>& nodes() const { return nodes_; }
  const StepPrograms& programs(int rank = 0) const {
    return ranks_[static_cast<size_t>(rank)].programs;
  }
  bool in_update(const CountedNode& counted) const {
    return counted.program == &programs().update.program;
  }

  /// The bytes that a rank got in the nodes that `counts` picks, on average or of one rank.
  template <typename Counts>
  double received(Counts&& counts) const {
    double bytes = 0;
    for (int rank = 0; rank < trial_.mesh.ranks(); ++rank) bytes += received_by(rank, counts);
    return bytes / trial_.mesh.ranks();
  }
  template <typename Counts>
  double received_by(int rank, Counts&& counts) const {
    double bytes = 0;
    for (const CountedNode& node : nodes_) {
      if (counts(node)) bytes += static_cast<double>(node.received[static_cast<size_t>(rank)]);
    }
    return bytes;
  }

  std::string text(const CountedNode& counted) const {
    return fmt::format("{} of layer {}, {}, {} ({})", counted.node->operation->name(),
                       counted.node->layer, word(counted.node->block), word(counted.node->phase),
                       in_update(counted) ? "update" : "chunk");
  }

 private:
  struct RankNode {
    const Program* program = nullptr;
    const Node* node = nullptr;
    int64_t received = 0;
    std::map<std::vector<Axis>, int64_t> received_by_axes = {};
  };
  struct Rank {
    StepPrograms programs;
    std::vector<RankNode> nodes;
  };

  static std::vector<Rank> count(const Mesh& mesh) {
    return std::vector<Rank>(static_cast<size_t>(mesh.ranks()));
  }

  static constexpr Lane kLanesOfPrograms[] = {Lane::compute, Lane::exchanges, Lane::reductions};

  /// The communicators over all sets of axes of a view, on all lanes of programs.
  static std::set<Communicator*> all_groups(RankGroups& groups) {
    std::set<Communicator*> result;
    for (const MeshView view : {MeshView::dense, MeshView::expert}) {
      const std::span<const Axis> axes = groups.mesh().axes_of(view);
      for (unsigned set = 1; set < 1U << axes.size(); ++set) {
        std::vector<Axis> over;
        for (size_t i = 0; i < axes.size(); ++i) {
          if ((set >> i & 1U) != 0) over.push_back(axes[i]);
        }
        for (const Lane lane : kLanesOfPrograms) result.insert(&groups.over(over, word(lane)));
      }
    }
    return result;
  }

  static int64_t received_bytes(const Communicator& group) {
    int64_t bytes = 0;
    for (size_t kind = 0; kind < kWordsOf<Collective>.size(); ++kind) {
      bytes += group.traffic(static_cast<Collective>(kind)).received_bytes;
    }
    return bytes;
  }

  /// The communicators that a node's operation names by its bytes on the wire, with the axes.
  static std::map<Communicator*, std::vector<Axis>> named_groups(RankGroups& groups,
                                                                 const Program& of,
                                                                 const Node& node) {
    std::map<Communicator*, std::vector<Axis>> result;
    for (const WireBytes& wire :
         node.operation->cost(of.specs(node.inputs), of.specs(node.outputs)).wire) {
      for (const Lane lane : kLanesOfPrograms) {
        result[&groups.over(wire.axes, word(lane))] = wire.axes;
      }
    }
    return result;
  }

  void run(RankGroups& groups, const std::vector<Batch>& batches) {
    Rank& rank = ranks_[static_cast<size_t>(groups.rank())];
    rank.programs = layout_programs(trial_, groups.rank());
    const Chunk& chunk = rank.programs.chunks().front();
    Runtime runtime(host_target(1));
    runtime.join(groups);
    Executor executor(rank.programs.list(), rank.programs.actions(), runtime);
    ParameterStore store = store_of(rank.programs, executor);
    TrainingStep step(rank.programs, executor, store);
    store.initialize(trial_.seed, 1);
    std::map<Communicator*, int64_t> before;
    for (Communicator* group : all_groups(groups)) before[group] = received_bytes(*group);
    executor.set_observer([&](const Program& of, const Node& node, std::span<const Tensor>) {
      RankNode counted{&of, &node, 0};
      const std::map<Communicator*, std::vector<Axis>> named = named_groups(groups, of, node);
      for (auto& [group, known] : before) {
        const int64_t received = received_bytes(*group) - known;
        known += received;
        counted.received += received;
        if (received == 0) continue;
        const auto axes = named.find(group);
        ASSERT_NE(axes, named.end()) << node.operation->name();
        counted.received_by_axes[axes->second] += received;
      }
      rank.nodes.push_back(counted);
    });
    step.on_inputs([&](const TrainingStep::BegunRun& run) {
      if (run.program == 0) pin(executor, chunk);
    });
    step.forward_backward(std::span(batches).first(1), batches);
    step.update(trial_.optimizer, {.step = 1, .steps = 1});
    EXPECT_TRUE(step.results().wait().updated);
  }

  void pin(Executor& executor, const Chunk& chunk) const {
    if (trial_.pinned.empty()) return;
    const int64_t k = trial_.model.experts_per_token;
    for (size_t layer = 0; layer < chunk.batch.choices.size(); ++layer) {
      const std::vector<int32_t>& chosen = trial_.pinned[0][0][layer];
      write_piece(executor, 0, 0, chunk.batch.choices[layer], {std::ssize(chosen) / k, k}, chosen);
    }
  }

  void join() {
    for (size_t i = 0; i < ranks_[0].nodes.size(); ++i) {
      const RankNode& first = ranks_[0].nodes[i];
      CountedNode counted{.program = first.program, .node = first.node, .received = {}};
      for (const Rank& rank : ranks_) {
        ASSERT_EQ(rank.nodes.size(), ranks_[0].nodes.size());
        const RankNode& own = rank.nodes[i];
        ASSERT_EQ(own.node->operation->name(), first.node->operation->name());
        counted.received.push_back(own.received);
        for (const auto& [axes, bytes] : own.received_by_axes) {
          counted.received_by_axes[axes] += bytes;
        }
        const Cost cost = own.node->operation->cost(own.program->specs(own.node->inputs),
                                                    own.program->specs(own.node->outputs));
        for (const WireBytes& wire : cost.wire) counted.cost += wire.bytes;
      }
      nodes_.push_back(std::move(counted));
    }
  }

  LayoutTrial trial_;
  std::vector<Rank> ranks_;
  std::vector<CountedNode> nodes_;  // of the step, in the order of running
};

}  // namespace tessera::testing
