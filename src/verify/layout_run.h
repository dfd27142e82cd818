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
#include "state/optimizer_config.h"
#include "state/shard_config.h"
#include "train/training_step.h"
#include "verify/gradient_bytes.h"
#include "verify/sums_of_parts.h"
#include "verify/value_stream.h"

namespace tessera {

/// The experts that every token of a step chose, [tokens, k], by micro-batch and mixture layer.
using StepChoices = std::vector<std::vector<std::vector<int32_t>>>;

/// Tensors of a model by the parameters' names.
using NamedTensors = std::map<std::string, Tensor>;

/// What a layout is tried with: a model, its size, and how ranks share it.
struct LayoutTrial {
  ModelConfig model;
  OptimizerConfig optimizer;
  Recompute recompute;
  ProgramSize size;  ///< of a micro-batch of all ranks
  DType compute = DType::f64;
  uint64_t seed = 1;
  /// Whole weights to begin with, by the parameters' names. If there are none, all are drawn.
  NamedTensors initial = {};
  Mesh mesh;
  ExpertLayout experts;
  ShardConfig shard = {};
  /// By step: the choices of experts that are taken instead of the routers' own. Empty: those.
  std::vector<StepChoices> pinned = {};
  /// By step: the whole gradients that the update of one rank takes instead of its own. So one rank
  /// begins each step with the weights of the run that computed these. Empty: its own.
  std::vector<NamedTensors> followed = {};
  /// The data ranks whose parts of a micro-batch one rank computes one after the other, and adds up
  /// as they would.
  int parts = 1;
  PartOrder part_order = {};
  /// Changes the programs of a rank, of several, before they run. Tests make mistakes by it.
  std::function<void(StepPrograms&)> change = {};
  int threads = 1;                                   ///< of the machine, shared out to the ranks
  std::chrono::seconds rank_timeout = kRankTimeout;  ///< how long a rank waits for another
  bool streams = false;  ///< whether to keep all values of the first step's micro-batches
};

/// One of the steps. All ranks have the same.
struct LayoutStep {
  StepResults results;
  std::vector<std::vector<double>> expert_tokens;  ///< by mixture layer and expert
  bool operator==(const LayoutStep&) const = default;
};

/// What some training steps of a model give, put together from the pieces of all ranks.
struct LayoutResults {
  std::vector<LayoutStep> steps;
  std::vector<StepChoices> choices;     ///< of one rank, by step; empty for several
  std::vector<NamedTensors> gradients;  ///< by step, before the update
  NamedTensors weights;                 ///< the masters after the last step
  /// What the programs of several ranks compute with after the last step: the weights, rounded.
  NamedTensors computed_weights;
  GradientBytes gradient_bytes;      ///< of all steps and ranks
  std::vector<ValueStream> streams;  ///< by rank, if the trial wants them
  /// Names the first gradient or weight of which ranks that hold the same piece hold different
  /// numbers. The results have one of these. None: all copies are the same.
  std::optional<std::string> other_copies;
  /// Names the first step of which ranks report different results. All should report the same.
  /// The results have one of these. None: all do.
  std::optional<std::string> other_results;
};

/// The batches of some steps: of each step, its micro-batches.
using StepBatches = std::vector<std::vector<Batch>>;

/// The batches of a trial, as the loaders of a run give them.
struct TrialBatches {
  StepBatches whole;  ///< of all ranks together, for one rank
  /// By rank of the mesh. If there are none, each rank takes its sequences out of the whole.
  std::vector<StepBatches> parts;

  /// Those that a rank of a mesh takes.
  const StepBatches& of_rank(const MeshRank& place) const;
};

/// The programs of a rank of a trial.
StepPrograms layout_programs(const LayoutTrial& trial, int rank);

/// Trains for some steps, each of some micro-batches of all ranks, with ranks that are threads of
/// this process. Throws Error if the model does not divide over the mesh.
LayoutResults try_layout(const LayoutTrial& trial, const TrialBatches& batches);
/// The same. Throws Error, too, if ranks hold other copies or report other results.
LayoutResults run_layout(const LayoutTrial& trial, const TrialBatches& batches);
/// The same of whole batches.
LayoutResults run_layout(const LayoutTrial& trial, const StepBatches& steps);

}  // namespace tessera
