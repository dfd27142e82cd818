#pragma once

#include <optional>
#include <vector>

#include "config/run_config.h"
#include "engine/action.h"
#include "model/model.h"
#include "state/parameter_store.h"
#include "state/update_program.h"

namespace tessera {

/// Returns the configuration for using the model without training: no token is dropped and the
/// router chooses the experts, even if the model was trained with a capacity or forced routing. A
/// result therefore does not depend on the rest of the batch.
ModelConfig inference_config(ModelConfig config);

/// The programs of a further phase of a run that differs in context, micro-batch or rope_theta (see
/// RunPhase::same_programs()). The phases share weights, sums and the update.
struct PhasePrograms {
  Chunk chunk;
  std::optional<EvaluationProgram> evaluation;
};

/// Every program that a rank runs in training.
struct StepPrograms {
  std::vector<Chunk> chunks;                    ///< one, which is the whole model
  Program start;                                ///< runs before the micro-batches of a step
  UpdateProgram update;                         ///< runs after them
  Program rounding;                             ///< rounds masters to weights after they were set
  std::optional<EvaluationProgram> evaluation;  ///< set if the run evaluates
  std::vector<PhasePrograms> further_phases;    ///< of phases that cannot use the programs above
  std::vector<int> set_of_phase{0};             ///< by phase: the number of its set of passes

  /// Returns the programs; the functions below return their numbers, the indices in this list.
  std::vector<const Program*> list() const;
  int start_number() const { return static_cast<int>(chunks.size()); }
  int update_number() const { return start_number() + 1; }
  int rounding_number() const { return start_number() + 2; }
  int evaluation_number() const { return start_number() + 3; }

  // A *set of passes* is a chunk and, if the run evaluates, an evaluation. Set 0 is the first
  // phase's, and the others are in `further_phases`.
  const Chunk& chunk(int set) const;
  int chunk_number(int set) const;
  const std::optional<EvaluationProgram>& evaluation_of(int set) const;
  int evaluation_number(int set) const;
  int set_count() const { return static_cast<int>(further_phases.size()) + 1; }

  /// Returns the actions of a step with one micro-batch, of the rounding, of an evaluation and of
  /// further phases. All micro-batches have the number 0: they run one after the other in one frame
  /// of memory.
  std::vector<Action> actions() const;
};

/// Writes the programs around a chunk that is the whole model, without an evaluation.
StepPrograms step_programs(Chunk whole_model, const OptimizerConfig& optimizer,
                           const ShardConfig& shard = {});

/// Writes the programs that a rank runs in all phases of a resolved configuration. Each rank along
/// the data axis has micro-batches of train.micro_batch sequences.
StepPrograms step_programs(const RunConfig& config, const MeshRank& mesh_rank = {});

/// Returns the training state of a rank, in the memory of the executor that runs its programs. Both
/// arguments must outlive it.
ParameterStore store_of(const StepPrograms& programs, Executor& executor);

}  // namespace tessera
