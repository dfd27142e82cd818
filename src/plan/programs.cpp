#include "plan/programs.h"

#include <algorithm>
#include <utility>

#include "config/mesh_of.h"
#include "config/phases.h"

namespace tessera {
namespace {

ProgramSize program_size(const RunConfig& config, const Mesh& mesh) {
  return {.sequences = config.train.micro_batch * data_ranks(mesh),
          .context = config.data.context,
          .document_mask = config.data.document_mask};
}

/// Returns the passes of one phase, or of a run without phases.
PhasePrograms passes_of(const RunConfig& config, const MeshRank& mesh_rank) {
  const DType compute = compute_dtype(config.train.precision);
  const ProgramSize size = program_size(config, mesh_rank.mesh);
  const ExpertLayout experts = expert_layout(config.parallel);
  PhasePrograms passes{write_training(config.model, compute, size,
                                      recompute_of(config.train.recompute), mesh_rank, experts),
                       {}};
  if (config.train.evaluate_every > 0) {
    // Evaluation drops no token, so a rank may receive more rows than in training.
    ExpertLayout unbounded = experts;
    unbounded.rows_bound = 0;
    passes.evaluation =
        write_evaluation(inference_config(config.model), compute, size, mesh_rank, unbounded);
  }
  return passes;
}

}  // namespace

ModelConfig inference_config(ModelConfig config) {
  config.capacity_factor = 0;
  config.forced_uniform_routing = false;
  return config;
}

std::vector<const Program*> StepPrograms::list() const {
  std::vector<const Program*> result;
  for (const Chunk& chunk : chunks) result.push_back(&chunk.program);
  result.push_back(&start);
  result.push_back(&update.program);
  result.push_back(&rounding);
  if (evaluation) result.push_back(&evaluation->program);
  for (const PhasePrograms& phase : further_phases) {
    result.push_back(&phase.chunk.program);
    if (phase.evaluation) result.push_back(&phase.evaluation->program);
  }
  return result;
}

std::vector<Action> StepPrograms::actions() const {
  std::vector<Action> result{{.segment = Segment::whole, .program = start_number()},
                             {.segment = Segment::forward},
                             {.segment = Segment::backward},
                             {.segment = Segment::whole, .program = update_number()},
                             {.segment = Segment::whole, .program = rounding_number()}};
  if (evaluation) result.push_back({.segment = Segment::whole, .program = evaluation_number()});
  for (int set = 1; set < set_count(); ++set) {
    result.push_back({.segment = Segment::forward, .program = chunk_number(set)});
    result.push_back({.segment = Segment::backward, .program = chunk_number(set)});
    if (evaluation_of(set)) {
      result.push_back({.segment = Segment::whole, .program = evaluation_number(set)});
    }
  }
  return result;
}

const Chunk& StepPrograms::chunk(int set) const {
  return set == 0 ? chunks.front() : further_phases[static_cast<size_t>(set - 1)].chunk;
}

int StepPrograms::chunk_number(int set) const {
  if (set == 0) return 0;
  const int set_size = evaluation ? 2 : 1;
  return rounding_number() + set_size + (set - 1) * set_size;
}

const std::optional<EvaluationProgram>& StepPrograms::evaluation_of(int set) const {
  return set == 0 ? evaluation : further_phases[static_cast<size_t>(set - 1)].evaluation;
}

int StepPrograms::evaluation_number(int set) const {
  return set == 0 ? evaluation_number() : chunk_number(set) + 1;
}

StepPrograms step_programs(Chunk whole_model, const OptimizerConfig& optimizer,
                           const ShardConfig& shard) {
  StepPrograms programs;
  programs.chunks.push_back(std::move(whole_model));
  const Chunk& chunk = programs.chunks.front();
  const MeshRank mesh_rank{chunk.program.mesh(), chunk.program.rank()};
  const std::vector<ParameterUnit>& units = chunk.parameters.units();
  programs.start = write_step_start(units, chunk.sums(), mesh_rank);
  programs.update =
      write_update(units, chunk.parameters.specs(), chunk.sums(), optimizer, mesh_rank, shard,
                   {.units = chunk.balance_units, .rate = chunk.balance_rate});
  programs.rounding =
      write_rounding(units, chunk.parameters.specs(), mesh_rank, programs.update.sharing);
  return programs;
}

StepPrograms step_programs(const RunConfig& config, const MeshRank& mesh_rank) {
  const std::vector<RunPhase> phases = phases_of(config);
  PhasePrograms first = passes_of(phases.front().config, mesh_rank);
  StepPrograms programs = step_programs(std::move(first.chunk), config.optimizer, config.shard);
  programs.evaluation = std::move(first.evaluation);
  for (size_t i = 1; i < phases.size(); ++i) {
    const auto first_equal = std::ranges::find_if(
        phases, [&](const RunPhase& phase) { return phase.same_programs(phases[i]); });
    const auto equal_index = static_cast<size_t>(first_equal - phases.begin());
    const bool is_new = equal_index == i;
    if (is_new) programs.further_phases.push_back(passes_of(phases[i].config, mesh_rank));
    programs.set_of_phase.push_back(is_new ? static_cast<int>(programs.further_phases.size())
                                           : programs.set_of_phase[equal_index]);
  }
  return programs;
}

ParameterStore store_of(const StepPrograms& programs, Executor& executor) {
  return {executor, programs.update, programs.update_number(), programs.rounding_number(),
          programs.chunks.front().parameters};
}

}  // namespace tessera
