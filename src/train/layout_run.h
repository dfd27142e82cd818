#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "comm/in_process/world.h"
#include "data/loader.h"
#include "model/chunk.h"
#include "state/optimizer_config.h"
#include "state/shard_config.h"
#include "train/sums_of_parts.h"
#include "train/training_step.h"
#include "train/value_stream.h"

namespace tessera {

/// The experts that every token of a step chose, [tokens, k], by micro-batch and mixture layer.
using StepChoices = std::vector<std::vector<std::vector<int32_t>>>;

/// What a layout is tried with: a model, its size, and how ranks share it.
struct LayoutTrial {
  ModelConfig model;
  OptimizerConfig optimizer;
  Recompute recompute;
  ProgramSize size;  ///< of a micro-batch of all ranks
  DType compute = DType::f64;
  uint64_t seed = 1;
  /// Whole weights to begin with, by the parameters' names. If there are none, all are drawn.
  std::map<std::string, Tensor> initial = {};
  Mesh mesh;
  ExpertLayout experts;
  ShardConfig shard = {};
  /// By step: the choices of experts that are taken instead of the routers' own. Empty: those.
  std::vector<StepChoices> pinned = {};
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
  std::vector<StepChoices> choices;  ///< of one rank, by step; empty for several
  /// By the parameter's name: the gradients of the first step, and the weights after the last one.
  std::map<std::string, Tensor> gradients;
  std::map<std::string, Tensor> weights;
  std::vector<ValueStream> streams;  ///< by rank, if the trial wants them
};

/// The programs of a rank of a trial.
StepPrograms layout_programs(const LayoutTrial& trial, int rank);

/// Trains for some steps, each of some micro-batches of all ranks, with ranks that are threads of
/// this process. Throws Error if ranks that hold the same piece hold different numbers, with its
/// name, and if the model does not divide over the mesh.
LayoutResults run_layout(const LayoutTrial& trial, std::span<const std::vector<Batch>> steps);

/// Batches of random tokens for `steps` steps of `micro_batches`. Some targets are left out, and
/// documents begin at random places. They depend on the seed alone.
std::vector<std::vector<Batch>> random_batches(const ProgramSize& size, int64_t vocabulary_size,
                                               int steps, int micro_batches, uint64_t seed);

}  // namespace tessera
