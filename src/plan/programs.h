#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "config/run_config.h"
#include "engine/action.h"
#include "model/model.h"
#include "pipeline/stage_list.h"
#include "plan/evaluation_passes.h"
#include "plan/micro_batch_turns.h"
#include "state/parameter_store.h"
#include "state/update_program.h"

namespace tessera {

/// Returns the configuration for using the model without training: no token is dropped and the
/// router chooses the experts, even if the model was trained with a capacity or forced routing. A
/// result therefore does not depend on the rest of the batch.
ModelConfig inference_config(ModelConfig config);

/// The passes of one phase on one rank, or of several that differ neither in context, micro-batch
/// nor rope_theta (see RunPhase::same_programs()). All phases share weights, sums and the update.
struct Passes {
  /// Says which pipeline stage has which chunk of the model; one stage with one chunk by default.
  ChunkPlacement placement = loop_placement(1, 1);
  std::vector<Chunk> chunks;                   ///< of this rank's stage, in the model's order
  std::optional<EvaluationPasses> evaluation;  ///< none if the run does not evaluate
  /// By the number of micro-batches of a step. Not needed for one stage with one chunk.
  std::map<int, PipelineSchedule> schedules;
  int most_micro_batches = 1;  ///< of a step
  MicroBatchTurns turns;       ///< of one stage with one chunk
};

/// Every program that a rank runs in training.
struct StepPrograms {
  ModelOutline model;        ///< the whole model, whatever part of it this rank has
  std::vector<Passes> sets;  ///< those of the first phase, and those of phases that need others
  Program start;             ///< runs before the micro-batches of a step
  UpdateProgram update;      ///< runs after them
  Program rounding;          ///< rounds masters to weights after they were set
  std::vector<int> set_of_phase{0};  ///< by phase: the number of its set of passes
  /// How many sums of the update the lists of steps begin (see begin_sums()), if they may begin
  /// any.
  std::optional<int> early_sums = {};

  /// Returns the programs; the functions below return their numbers, the indices in this list.
  std::vector<const Program*> list() const;
  int chunk_number(int set, size_t chunk = 0) const;
  int start_number() const { return static_cast<int>(sets.front().chunks.size()); }
  int update_number() const { return start_number() + 1; }
  int rounding_number() const { return start_number() + 2; }
  /// Returns the number of the first chunk's evaluation; those of the other chunks follow.
  int evaluation_number(int set = 0) const;

  /// Returns what a rank runs before a list of passes, and after it.
  Action start_action() const { return {.program = start_number()}; }
  Action update_action(const StageList& list) const {
    return {.program = update_number(), .steps = {.begin = list.update_steps}};
  }

  MeshRank mesh_rank() const { return {start.mesh(), start.rank()}; }
  /// Returns the chunks of this rank's stage in the first phase.
  const std::vector<Chunk>& chunks() const { return sets.front().chunks; }
  std::vector<Chunk>& chunks() { return sets.front().chunks; }

  /// Returns the schedule of a step of so many micro-batches. Throws InternalError if there is
  /// none.
  PipelineSchedule step_schedule(int set, int micro_batches) const;
  /// Returns what this rank does with the micro-batches of a step, by step_schedule(). The list
  /// begins sums of the update and lets micro-batches take turns, as the programs overlap, unless
  /// `overlaps` is false.
  StageList step_list(int set, int micro_batches, bool overlaps = true) const;
  /// Returns what it does with another schedule of the same placement.
  StageList step_list(int set, const PipelineSchedule& schedule, bool overlaps = true) const;
  /// Returns these lists, by the number of micro-batches: for one stage with one chunk those of so
  /// few micro-batches that lists of more do nothing else.
  std::vector<StageList> step_lists(int set, bool overlaps = true) const;

  /// Returns the lists of the steps and evaluations of all phases.
  std::vector<StageList> stage_lists() const;
  /// Returns a step with this list of passes, as plan_memory() takes it.
  std::vector<ListEntry> whole_step(const StageList& list) const;
  /// Returns all that the rank does, as plan_memory() takes it: the rounding, then the steps of all
  /// phases, each with the start, the passes and the update, and their evaluations.
  std::vector<ListEntry> actions() const;
};

/// Writes the programs around passes, without an evaluation. `model` is the outline of the whole
/// model.
StepPrograms step_programs(Passes passes, ModelOutline model, const OptimizerConfig& optimizer,
                           const ShardPlan& shard = {});
/// Does so for a chunk that is the whole model.
StepPrograms step_programs(Chunk whole_model, const OptimizerConfig& optimizer,
                           const ShardPlan& shard = {});

class FoundOrders;

/// Writes the programs that a rank runs in all phases of a resolved configuration. Each rank along
/// the data axis has micro-batches of train.micro_batch sequences. Ranks of a process may share
/// what overlap() finds.
StepPrograms step_programs(const RunConfig& config, const MeshRank& mesh_rank, FoundOrders& found);
/// Does so for a rank that shares nothing.
StepPrograms step_programs(const RunConfig& config, const MeshRank& mesh_rank = {});

/// A model of which ranks keep pieces of the weights or of the main gradients.
struct CutModel {
  ModelOutline outline;  ///< of the whole model
  CutUnits units;        ///< those of the outline
};

/// The passes of training, or of an evaluation, before they are written.
struct PassesToWrite {
  ModelConfig model;
  DType compute = DType::f32;
  ProgramSize size;     ///< of a micro-batch of all ranks
  Recompute recompute;  ///< of the rank's stage; an evaluation recomputes nothing
  ExpertLayout experts;
  ChunkPlacement placement;
  std::vector<ChunkRange> ranges;  ///< by chunk of the model
  /// What the passes gather and reduce; null if each rank keeps whole weights and main gradients.
  std::shared_ptr<const CutModel> cut = nullptr;

  const CutUnits* cut_units() const { return cut ? &cut->units : nullptr; }
};
/// Returns the model of these passes as ranks keep pieces of it. It writes the whole model once,
/// because the size of a unit is known only then, and a gather stands before the parts of the unit.
/// Returns null if ranks keep all of it.
std::shared_ptr<const CutModel> cut_model(const PassesToWrite& passes,
                                          const OptimizerConfig& optimizer, const ShardPlan& shard,
                                          const MeshRank& mesh_rank);
/// Returns what the passes of one phase, of a run without phases, or of an evaluation in batches of
/// train.micro_batch sequences for each data-parallel rank are written from.
PassesToWrite passes_to_write(const RunConfig& config, const MeshRank& mesh_rank);
/// Writes the chunks of a rank's stage. Schedules are left out.
Passes write_passes(const PassesToWrite& passes, const MeshRank& mesh_rank);
/// Writes the evaluation of the chunks of a rank's stage. It drops no token (inference_config()),
/// so a rank may receive more rows than in training: ExpertLayout::rows_bound does not apply.
EvaluationPasses write_evaluation_passes(const PassesToWrite& passes, const MeshRank& mesh_rank);
/// Returns the outline of the whole model whose chunks these are.
ModelOutline outline_of(const PassesToWrite& passes, const Passes& written,
                        const MeshRank& mesh_rank);

/// Returns the training state of a rank, in the memory of the executor that runs its programs. Both
/// arguments must outlive it.
ParameterStore store_of(const StepPrograms& programs, Executor& executor);

}  // namespace tessera
