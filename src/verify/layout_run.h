#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/in_process/world.h"
#include "data/loader.h"
#include "model/chunk.h"
#include "pipeline/schedule.h"
#include "plan/overlap_step.h"
#include "state/optimizer_config.h"
#include "state/shard_config.h"
#include "train/training_step.h"
#include "verify/gradient_bytes.h"
#include "verify/sums_of_parts.h"
#include "verify/value_stream.h"

namespace tessera {

/// The experts that the tokens of a step chose, [tokens, k], by micro-batch and mixture layer.
using StepChoices = std::vector<std::vector<std::vector<int32_t>>>;

/// Tensors of a model by the parameters' names.
using NamedTensors = std::map<std::string, Tensor>;

/// The stages of a trial, and the order in which they take its micro-batches.
struct TrialPipeline {
  std::vector<ChunkRange> ranges = {};  ///< by chunk of the model; empty for one chunk
  PipelineSchedule schedule = {};       ///< not used for one chunk
  /// The stages that recompute what LayoutTrial::recompute names; all if empty.
  std::vector<int64_t> recompute_stages = {};

  bool has_chunks() const { return ranges.size() > 1; }
};

/// A trial of a layout, a short training: a model, its sizes, and how ranks share it.
struct LayoutTrial {
  ModelConfig model;
  OptimizerConfig optimizer;
  Recompute recompute;
  ProgramSize size;  ///< of a micro-batch of all ranks
  DType compute = DType::f64;
  uint64_t seed = 1;
  /// The whole weights to begin with, by the parameters' names. If empty, all weights are drawn.
  NamedTensors initial = {};
  Mesh mesh;
  /// The pipeline of several ranks. A single rank has the whole model in one chunk.
  TrialPipeline pipeline = {};
  ExpertLayout experts;
  /// How the ranks of `mesh` share out the state. A single rank has all of it.
  ShardPlan shard = {};
  /// By step: the choices of experts that replace the routers' own. If empty, routers choose.
  std::vector<StepChoices> pinned = {};
  /// By step: the whole gradients of another run, which a single rank takes for its update, so that
  /// it begins each step with the weights of that run. If empty, it takes its own.
  std::vector<NamedTensors> followed = {};
  /// The number of parts of a micro-batch, one for each data rank of a layout, that a single rank
  /// computes one after the other. It adds up their gradients as those ranks would (SumsOfParts).
  int parts = 1;
  SumOrder sum_order = {};
  /// Changes the programs of each of several ranks: tests introduce mistakes with it.
  std::function<void(StepPrograms&)> change = {};
  int threads = 1;                                   ///< of the machine, divided among the ranks
  std::chrono::seconds rank_timeout = kRankTimeout;  ///< for which a rank waits for another
  bool streams = false;   ///< keep all values of the first step's micro-batches
  int micro_batches = 2;  ///< of a step
  /// How the programs of several ranks overlap, as in training; none: not at all.
  std::optional<OverlapOptions> overlap =
      OverlapOptions{.seconds = nominal_seconds, .memory = int64_t{512} << 20};
};

/// The results of one step. All ranks have the same.
struct LayoutStep {
  StepResults results;
  std::vector<std::vector<double>> expert_tokens;  ///< by mixture layer and expert
  bool operator==(const LayoutStep&) const = default;
};

/// The results of some training steps of a model, put together from the pieces of all ranks.
struct LayoutResults {
  std::vector<LayoutStep> steps;
  std::vector<StepChoices> choices;     ///< by step, if there is one rank; empty for several
  std::vector<NamedTensors> gradients;  ///< by step, before the update
  NamedTensors weights;                 ///< the masters after the last step
  /// The rounded masters, with which programs compute after the last step; only of several ranks.
  NamedTensors computed_weights;
  GradientBytes gradient_bytes;      ///< of the first step, the sum over all ranks
  std::vector<ValueStream> streams;  ///< by rank, if LayoutTrial::streams is set
  /// The first gradient or weight of which two ranks hold different copies; the results have one.
  std::optional<std::string> unequal_copies;
  /// The first step of which ranks report different results, if any; the results have one rank's.
  std::optional<std::string> unequal_results;
};

/// The micro-batches of some steps, by step.
using StepBatches = std::vector<std::vector<Batch>>;

/// The batches of a trial, as the loaders of a run return them.
struct TrialBatches {
  StepBatches whole;  ///< the batches of all ranks together, for a trial with one rank
  /// The batches of each rank of the mesh. If empty, each takes its sequences from the whole ones.
  std::vector<StepBatches> parts;

  /// Returns the batches of a rank: the whole ones for a single rank, or if there are no parts.
  const StepBatches& of_rank(const MeshRank& mesh_rank) const;
};

/// Returns the programs of one rank of a trial, for one part of a micro-batch. Ranks of a process
/// may share what overlap() finds for the trial.
StepPrograms layout_programs(const LayoutTrial& trial, int rank, FoundOrders& found);
/// Does so for a rank that shares nothing.
StepPrograms layout_programs(const LayoutTrial& trial, int rank);

/// Trains for some steps, with ranks that are threads of this process, and returns the results.
/// Throws Error if the model does not divide over the mesh.
LayoutResults try_layout(const LayoutTrial& trial, const TrialBatches& batches);
/// Does the same. Throws Error, too, if ranks hold unequal copies or report different results.
LayoutResults run_layout(const LayoutTrial& trial, const TrialBatches& batches);

}  // namespace tessera
