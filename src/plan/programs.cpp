#include "plan/programs.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "config/mesh_of.h"
#include "config/phases.h"
#include "config/pipeline_of.h"
#include "pipeline/generate.h"
#include "plan/balance_stages.h"
#include "plan/early_sums.h"
#include "plan/overlap_step.h"

namespace tessera {
namespace {

ProgramSize program_size(const RunConfig& config, const Mesh& mesh) {
  return {.sequences = config.train.micro_batch * data_ranks(mesh),
          .context = config.data.context,
          .document_mask = config.data.document_mask};
}

/// The passes of a phase, and what they were written from.
struct WrittenPasses {
  PassesToWrite from;
  Passes passes;
};

/// Returns the passes of one phase, or of a run without phases. `cut` is that of the first phase,
/// which all phases share.
WrittenPasses passes_of(const RunConfig& config, const MeshRank& mesh_rank, const ShardPlan& shard,
                        std::shared_ptr<const CutModel> cut = nullptr) {
  WrittenPasses written{.from = passes_to_write(config, mesh_rank), .passes = {}};
  written.from.cut =
      cut ? std::move(cut) : cut_model(written.from, config.optimizer, shard, mesh_rank);
  written.passes = write_passes(written.from, mesh_rank);
  if (config.train.evaluate_every > 0) {
    written.passes.evaluation = write_evaluation_passes(written.from, mesh_rank);
  }
  return written;
}

/// Notes the micro-batches of a phase's steps, and their schedule if the stages need one.
void add_schedule(Passes& passes, const RunConfig& config, const Mesh& mesh) {
  const auto micro_batches_of_step =
      static_cast<int>(config.train.global_batch / (config.train.micro_batch * data_ranks(mesh)));
  passes.most_micro_batches = std::max(passes.most_micro_batches, micro_batches_of_step);
  if (passes.placement.chunks() == 1) return;
  PipelineSchedule schedule = pipeline_schedule(config, mesh);
  const int micro_batches = schedule.micro_batches;
  passes.schedules.insert_or_assign(micro_batches, std::move(schedule));
}

std::vector<ChunkProgram> chunk_programs(const StepPrograms& programs, int set) {
  std::vector<ChunkProgram> result;
  for (const Chunk& chunk : programs.sets[static_cast<size_t>(set)].chunks) {
    result.push_back({.program = programs.chunk_number(set, result.size()),
                      .activations_in = chunk.boundary_in.values(),
                      .activations_out = chunk.boundary_out.values(),
                      .gradients_in = chunk.boundary_out_gradients.values(),
                      .gradients_out = chunk.boundary_in_gradients.values()});
  }
  return result;
}

/// Writes the whole model, whatever the chunks of the passes, and returns its outline.
ModelOutline outline_of_model(const PassesToWrite& passes, const MeshRank& mesh_rank) {
  ModelOutline model = write_training(passes.model, passes.compute, passes.size, /*recompute=*/{},
                                      mesh_rank, passes.experts)
                           .outline;
  model.parameters.note_stages(
      passes.placement.ranks, [&](int stage, const ParameterSpec& parameter) {
        return std::ranges::any_of(passes.placement.chunks_of(stage), [&](int chunk) {
          return uses(passes.ranges[static_cast<size_t>(chunk)], passes.model, parameter);
        });
      });
  return model;
}

/// Throws InternalError unless a chunk has the units that the outline gives its stage.
void require_outlined(const ModelOutline& model, const std::vector<Chunk>& chunks, int stage) {
  const std::vector<ParameterUnit>& units = model.parameters.units();
  std::set<std::string> names;
  for (const Chunk& chunk : chunks) {
    for (const ParameterUnit& unit : chunk.outline.parameters.units()) {
      const auto known = std::ranges::find(units, unit.name, &ParameterUnit::name);
      TESSERA_CHECK(known != units.end() && known->on_stage(stage) &&
                        known->elements == unit.elements &&
                        known->distribution == unit.distribution &&
                        known->gradient_distribution == unit.gradient_distribution,
                    "the unit {} of stage {} is not that of the whole model", unit.name, stage);
      names.insert(unit.name);
    }
  }
  const auto expected =
      std::ranges::count_if(units, [&](const ParameterUnit& unit) { return unit.on_stage(stage); });
  TESSERA_CHECK(std::ssize(names) == expected, "stage {} has {} units; expected {}", stage,
                names.size(), expected);
}

}  // namespace

ModelConfig inference_config(ModelConfig config) {
  config.capacity_factor = 0;
  config.forced_uniform_routing = false;
  return config;
}

std::vector<const Program*> StepPrograms::list() const {
  std::vector<const Program*> result;
  for (const Passes& passes : sets) {
    for (const Chunk& chunk : passes.chunks) result.push_back(&chunk.program);
    if (&passes == &sets.front()) {
      result.insert(result.end(), {&start, &update.program, &rounding});
    }
    if (!passes.evaluation) continue;
    for (const Program* program : passes.evaluation->programs()) result.push_back(program);
  }
  return result;
}

int StepPrograms::chunk_number(int set, size_t chunk) const {
  const size_t others = 3;  // start, update, rounding
  size_t number = set == 0 ? 0 : others;
  for (const Passes& passes : std::span(sets).first(static_cast<size_t>(set))) {
    number += passes.chunks.size();
    if (passes.evaluation) number += passes.evaluation->chunks.size();
  }
  return static_cast<int>(number + chunk);
}

int StepPrograms::evaluation_number(int set) const {
  return set == 0 ? rounding_number() + 1
                  : chunk_number(set, sets[static_cast<size_t>(set)].chunks.size());
}

PipelineSchedule StepPrograms::step_schedule(int set, int micro_batches) const {
  const Passes& passes = sets[static_cast<size_t>(set)];
  if (passes.placement.chunks() == 1) {
    return generate(ScheduleKind::one_forward_one_backward,
                    {.ranks = 1, .chunks = 1, .micro_batches = micro_batches});
  }
  const auto schedule = passes.schedules.find(micro_batches);
  TESSERA_CHECK(schedule != passes.schedules.end(), "no schedule of {} micro-batches",
                micro_batches);
  return schedule->second;
}

StageList StepPrograms::step_list(int set, int micro_batches, bool overlaps) const {
  return step_list(set, step_schedule(set, micro_batches), overlaps);
}

StageList StepPrograms::step_list(int set, const PipelineSchedule& schedule, bool overlaps) const {
  const MicroBatchTurns& turns = sets[static_cast<size_t>(set)].turns;
  const bool has_turns = overlaps && !turns.empty();
  StageList result = stage_list(has_turns && turns.in_pairs ? in_pairs(schedule) : schedule,
                                start.mesh().stage(start.rank()), chunk_programs(*this, set));
  if (has_turns) take_turns(result, turns);
  if (overlaps) begin_sums(result, list(), update_number(), early_sums.value_or(0));
  return result;
}

std::vector<StageList> StepPrograms::step_lists(int set, bool overlaps) const {
  const Passes& passes = sets[static_cast<size_t>(set)];
  std::vector<StageList> result;
  if (passes.schedules.empty()) {
    // In the list of one chunk, the last micro-batch differs from those before it. With turns the
    // first two do, too, and two frames take turns as well.
    const int most = overlaps && !passes.turns.empty() ? 5 : 2;
    for (int count = 1; count <= most; ++count) result.push_back(step_list(set, count, overlaps));
  }
  for (const auto& [micro_batches, schedule] : passes.schedules) {
    result.push_back(step_list(set, micro_batches, overlaps));
  }
  return result;
}

std::vector<StageList> StepPrograms::stage_lists() const {
  std::vector<StageList> result;
  for (int set = 0; set < std::ssize(sets); ++set) {
    std::ranges::move(step_lists(set), std::back_inserter(result));
    const auto& evaluation = sets[static_cast<size_t>(set)].evaluation;
    if (evaluation) result.push_back(evaluation->list(evaluation_number(set)));
  }
  return result;
}

std::vector<ListEntry> StepPrograms::whole_step(const StageList& list) const {
  std::vector<ListEntry> result{start_action()};
  std::ranges::move(list.for_plan(), std::back_inserter(result));
  result.emplace_back(update_action(list));
  return result;
}

std::vector<ListEntry> StepPrograms::actions() const {
  std::vector<ListEntry> result{Action{.program = rounding_number()}};
  const auto add_step = [&](const StageList& list) {
    std::ranges::move(whole_step(list), std::back_inserter(result));
  };
  for (int set = 0; set < std::ssize(sets); ++set) {
    // What the update of a step leaves at work is so when the next step begins.
    const std::vector<StageList> lists = step_lists(set);
    add_step(lists.front());
    std::ranges::for_each(lists, add_step);
    // All stages have these lists, whatever theirs begin early.
    if (early_sums) std::ranges::for_each(step_lists(set, /*overlaps=*/false), add_step);
    const auto& evaluation = sets[static_cast<size_t>(set)].evaluation;
    if (!evaluation) continue;
    const StageList list = evaluation->list(evaluation_number(set));
    std::ranges::move(list.for_plan(), std::back_inserter(result));
  }
  return result;
}

PassesToWrite passes_to_write(const RunConfig& config, const MeshRank& mesh_rank) {
  const Mesh& mesh = mesh_rank.mesh;
  return {.model = config.model,
          .compute = compute_dtype(config.train.precision),
          .size = program_size(config, mesh),
          .recompute = recompute_of(recomputed_on(config.train, mesh.stage(mesh_rank.rank))),
          .experts = expert_layout(config.parallel),
          .placement = chunk_placement(config.parallel),
          .ranges = chunk_ranges(config)};
}

Passes write_passes(const PassesToWrite& passes, const MeshRank& mesh_rank) {
  Passes result{.placement = passes.placement,
                .chunks = {},
                .evaluation = std::nullopt,
                .schedules = {},
                .turns = {}};
  for (const int chunk : passes.placement.chunks_of(mesh_rank.mesh.stage(mesh_rank.rank))) {
    result.chunks.push_back(write_chunk(passes.model, passes.compute, passes.size, passes.recompute,
                                        passes.ranges[static_cast<size_t>(chunk)], mesh_rank,
                                        passes.experts, passes.cut_units()));
  }
  return result;
}

EvaluationPasses write_evaluation_passes(const PassesToWrite& passes, const MeshRank& mesh_rank) {
  ExpertLayout unbounded = passes.experts;
  unbounded.rows_bound = 0;
  EvaluationPasses result{
      .placement = passes.placement, .chunks = {}, .vocabulary_size = passes.model.vocabulary_size};
  for (const int chunk : passes.placement.chunks_of(mesh_rank.mesh.stage(mesh_rank.rank))) {
    result.chunks.push_back(write_evaluation(inference_config(passes.model), passes.compute,
                                             passes.size, passes.ranges[static_cast<size_t>(chunk)],
                                             mesh_rank, unbounded, passes.cut_units()));
  }
  return result;
}

std::shared_ptr<const CutModel> cut_model(const PassesToWrite& passes,
                                          const OptimizerConfig& optimizer, const ShardPlan& shard,
                                          const MeshRank& mesh_rank) {
  if (shard.axes.gradients == 0) return nullptr;
  CutModel model{.outline = outline_of_model(passes, mesh_rank), .units = {}};
  const ParameterList& parameters = model.outline.parameters;
  const StateShard state(mesh_rank, parameters, sharing_of(optimizer, shard));
  model.units.units = parameters.units();
  model.units.options = shard.unit_options;
  for (size_t i = 0; i < parameters.units().size(); ++i) {
    model.units.pieces.push_back(state.stored(i));
  }
  if (std::ranges::none_of(model.units.pieces, &UnitPieces::is_cut)) return nullptr;
  return std::make_shared<const CutModel>(std::move(model));
}

ModelOutline outline_of(const PassesToWrite& passes, const Passes& written,
                        const MeshRank& mesh_rank) {
  if (passes.ranges.size() == 1 && !passes.cut) return written.chunks.front().outline;
  ModelOutline model = passes.cut ? passes.cut->outline : outline_of_model(passes, mesh_rank);
  require_outlined(model, written.chunks, mesh_rank.mesh.stage(mesh_rank.rank));
  return model;
}

StepPrograms step_programs(Passes passes, ModelOutline model, const OptimizerConfig& optimizer,
                           const ShardPlan& shard) {
  StepPrograms programs;
  programs.model = std::move(model);
  programs.sets.push_back(std::move(passes));
  const Program& program = programs.chunks().front().program;
  const MeshRank mesh_rank{program.mesh(), program.rank()};
  const std::vector<ParameterUnit>& units = programs.model.parameters.units();
  const std::vector<ParameterSpec>& specs = programs.model.parameters.specs();
  const std::vector<StepSum> sums = programs.model.sums.all();
  programs.start = write_step_start(units, specs, sums, mesh_rank, sharing_of(optimizer, shard));
  programs.update =
      write_update(units, specs, sums, optimizer, mesh_rank, shard,
                   {.units = programs.model.balance_units, .rate = programs.model.balance_rate});
  programs.rounding = write_rounding(units, specs, mesh_rank, programs.update.sharing);
  return programs;
}

StepPrograms step_programs(Chunk whole_model, const OptimizerConfig& optimizer,
                           const ShardPlan& shard) {
  ModelOutline model = whole_model.outline;
  Passes passes;
  passes.chunks.push_back(std::move(whole_model));
  return step_programs(std::move(passes), std::move(model), optimizer, shard);
}

namespace {

/// Writes the programs of all phases in the order in which the model is written.
StepPrograms written_programs(const RunConfig& config, const MeshRank& mesh_rank) {
  const std::vector<RunPhase> phases = phases_of(with_stage_layers(config, mesh_rank.mesh));
  const ShardPlan shard = shard_plan(config.shard, mesh_rank.mesh);
  WrittenPasses first = passes_of(phases.front().config, mesh_rank, shard);
  ModelOutline model = outline_of(first.from, first.passes, mesh_rank);
  StepPrograms programs =
      step_programs(std::move(first.passes), std::move(model), config.optimizer, shard);
  for (size_t i = 1; i < phases.size(); ++i) {
    const auto first_equal = std::ranges::find_if(
        phases, [&](const RunPhase& phase) { return phase.same_programs(phases[i]); });
    const auto equal_index = static_cast<size_t>(first_equal - phases.begin());
    const bool is_new = equal_index == i;
    programs.set_of_phase.push_back(is_new ? static_cast<int>(programs.sets.size())
                                           : programs.set_of_phase[equal_index]);
    if (is_new)
      programs.sets.push_back(passes_of(phases[i].config, mesh_rank, shard, first.from.cut).passes);
  }
  for (size_t i = 0; i < phases.size(); ++i) {
    add_schedule(programs.sets[static_cast<size_t>(programs.set_of_phase[i])], phases[i].config,
                 mesh_rank.mesh);
  }
  return programs;
}

}  // namespace

StepPrograms step_programs(const RunConfig& config, const MeshRank& mesh_rank, FoundOrders& found) {
  StepPrograms programs = written_programs(config, mesh_rank);
  if (config.parallel.overlap && mesh_rank.mesh.ranks() > 1) {
    const auto of_rank = [&](int rank) { return written_programs(config, {mesh_rank.mesh, rank}); };
    overlap(programs, step_overlap(config, mesh_rank.mesh).options, of_rank, found);
  }
  return programs;
}

StepPrograms step_programs(const RunConfig& config, const MeshRank& mesh_rank) {
  FoundOrders own;
  return step_programs(config, mesh_rank, own);
}

ParameterStore store_of(const StepPrograms& programs, Executor& executor) {
  return {executor, programs.update, programs.update_number(), programs.rounding_number(),
          programs.model.parameters};
}

}  // namespace tessera
