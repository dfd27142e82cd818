// Plans the step of a rank: its programs, their work, and the memory of all of them together.
// plan_step_that_fits() also compares the memory with what is there: each rank with its own GPU, or
// the sum of all ranks of a machine with the machine's memory.

#include "plan/step_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "base/usable_memory.h"
#include "config/mesh_of.h"
#include "config/phases.h"
#include "data/loader.h"
#include "plan/overlap_step.h"
#include "plan/run_target.h"

namespace tessera {
namespace {

int64_t input_bytes(const Program& program) {
  int64_t bytes = 0;
  for (const ValueInfo& value : program.values()) {
    if (value.kind == ValueKind::input) bytes += value.spec.bytes();
  }
  return bytes;
}

}  // namespace

int64_t beside_arena_bytes(const StepPlan& plan) {
  // A rank keeps the batches that were read ahead, the one that is being read, and the batches of
  // two steps: of the one that computes and of the one that is being finished.
  constexpr int64_t kTokenBytes = 4 * sizeof(int32_t);  // of the four arrays of a Batch
  int64_t tokens = 0;  // of all these batches, in the phase with the most tokens
  for (const PhaseWork& phase : plan.phases) {
    const int64_t batches =
        std::max(LoaderOptions{}.read_ahead, phase.micro_batches) + 1 + 2 * phase.micro_batches;
    tokens = std::max(tokens, batches * phase.tokens);
  }
  int64_t values = 0;
  for (const Program* program : plan.programs.list()) {
    values += static_cast<int64_t>(program->values().size());
  }
  return tokens * kTokenBytes + values * kValueBytes + kRankBytes;
}

MeshRank StepPlan::mesh_rank() const { return programs.mesh_rank(); }

StepPlan plan_step(const RunConfig& config, const Target& target, const MeshRank& mesh_rank) {
  return plan_step(config, target, step_programs(config, mesh_rank));
}

StepPlan plan_step(const RunConfig& config, const Target& target, StepPrograms programs) {
  StepPlan plan{.programs = std::move(programs), .memory = {}};
  const MeshRank mesh_rank = plan.mesh_rank();
  const ParameterList& parameters = plan.programs.model.parameters;
  plan.parameters = parameters.elements();
  plan.active_parameters = active_parameters(config.model, parameters.specs());
  for (const ParameterSpec& spec : parameters.specs()) {
    const bool embeds = spec.role == ParameterRole::embedding || spec.role == ParameterRole::head;
    if (embeds) plan.embedding_parameters += spec.shape.elements();
  }
  std::map<int, FlopCount> flops;  // by the set of programs, which several phases may share
  for (const RunPhase& phase : phases_of(config)) {
    const TrainSection& train = phase.config.train;
    const int set = plan.programs.set_of_phase[plan.phases.size()];
    if (!flops.contains(set)) {
      for (const Chunk& chunk : plan.programs.sets[static_cast<size_t>(set)].chunks) {
        flops[set] += count_flops(chunk.program);
      }
    }
    plan.phases.push_back(
        {.tokens = train.micro_batch * phase.config.data.context,
         .micro_batches = train.global_batch / (train.micro_batch * data_ranks(mesh_rank.mesh)),
         .flops = flops[set]});
  }
  plan.tokens = plan.phases.front().tokens;
  plan.micro_batches = plan.phases.front().micro_batches;
  plan.flops = plan.phases.front().flops;
  for (const Chunk& chunk : plan.programs.chunks()) plan.input_bytes += input_bytes(chunk.program);
  plan.memory = plan_memory(plan.programs.list(), plan.programs.actions(), target);
  return plan;
}

std::string memory_advice(const RunConfig& config, int64_t state_bytes, int64_t usable_bytes) {
  if (state_bytes > usable_bytes) {
    return "only a smaller model or more memory helps, because weights, gradients and the "
           "optimizer's states alone do not fit";
  }
  if (!config.train.phases.empty()) {
    return "lower micro_batch or context of the phases that take the most, set train.recompute, or "
           "take a smaller model";
  }
  std::vector<std::string> advice;
  if (config.train.micro_batch > 1) {
    advice.push_back(fmt::format("lower train.micro_batch ({})", config.train.micro_batch));
  }
  if (config.train.recompute.empty()) {
    advice.emplace_back("set train.recompute");
  }
  advice.push_back(fmt::format("lower data.context ({})", config.data.context));
  advice.emplace_back("take a smaller model");
  return join(advice, ", ");
}

namespace {

/// The memory that `ranks` ranks of a run take together from one machine or device.
struct MemoryNeeds {
  int ranks = 0;
  int64_t arena_bytes = 0;
  int64_t state_bytes = 0;   // a part of arena_bytes: weights, gradients, optimizer's states
  int64_t beside_bytes = 0;  // beside_arena_bytes(), if there are several ranks
};

/// Throws Error if this machine or the accelerator has less memory.
void require_fits(const RunConfig& config, const MemoryNeeds& needs,
                  const Accelerator* accelerator) {
  const UsableMemory memory = usable_memory();
  const int64_t free = accelerator == nullptr ? memory.bytes : accelerator->free_bytes();
  const int64_t reserve = accelerator == nullptr ? 0 : kDeviceReserve;
  const int64_t usable = free - reserve;
  if (needs.arena_bytes + needs.beside_bytes <= usable) return;
  const std::string where =
      accelerator == nullptr
          ? memory.text()
          : fmt::format("{} has {} free, {} of it for its libraries, kernels and graphs",
                        accelerator->name(), format_bytes(free), format_bytes(reserve));
  const std::string advice = memory_advice(config, needs.state_bytes, usable);
  if (needs.ranks == 1) {
    throw Error(
        "the run needs {} of memory, {} of it weights, gradients and the optimizer's states, and "
        "{}; {} (`tessera explain` shows what takes it)",
        format_bytes(needs.arena_bytes), format_bytes(needs.state_bytes), where, advice);
  }
  throw Error(
      "the run needs {} of memory for its {} ranks together ({} for weights, gradients and the "
      "optimizer's states, {} for the other values, {} for the ranks' programs, threads and "
      "batches), and {}; give fewer --ranks; otherwise {} (`tessera explain` shows what takes it)",
      format_bytes(needs.arena_bytes + needs.beside_bytes), needs.ranks,
      format_bytes(needs.state_bytes), format_bytes(needs.arena_bytes - needs.state_bytes),
      format_bytes(needs.beside_bytes), where, advice);
}

}  // namespace

StepPlan plan_step_that_fits(const RunConfig& config, const Target& target,
                             const Accelerator* accelerator, const MeshRank& mesh_rank,
                             const RankControl& control, std::span<const int> ranks_here,
                             FoundOrders& found) {
  const bool has_own_memory = accelerator != nullptr && is_gpu(accelerator->device());
  std::optional<StepPlan> plan;
  MemoryNeeds rank_needs;
  control.together([&] {
    plan = plan_step(config, target, step_programs(config, mesh_rank, found));
    rank_needs = {.ranks = 1,
                  .arena_bytes = plan->memory.arena_bytes,
                  .state_bytes = plan->memory.kept_bytes};
    if (has_own_memory) require_fits(config, rank_needs, accelerator);
    if (control.several()) rank_needs.beside_bytes = beside_arena_bytes(*plan);
  });
  const std::array<uint64_t, 3> bytes{static_cast<uint64_t>(rank_needs.arena_bytes),
                                      static_cast<uint64_t>(rank_needs.state_bytes),
                                      static_cast<uint64_t>(rank_needs.beside_bytes)};
  const std::vector<uint64_t> of_all_ranks = control.gather(bytes);
  MemoryNeeds machine_needs;
  for (const int rank : ranks_here) {
    const auto of_rank = std::span(of_all_ranks).subspan(static_cast<size_t>(rank) * bytes.size());
    ++machine_needs.ranks;
    machine_needs.arena_bytes += static_cast<int64_t>(of_rank[0]);
    machine_needs.state_bytes += static_cast<int64_t>(of_rank[1]);
    machine_needs.beside_bytes += static_cast<int64_t>(of_rank[2]);
  }
  if (!has_own_memory) control.together([&] { require_fits(config, machine_needs, accelerator); });
  return std::move(*plan);
}

StepPlan plan_step_that_fits(const RunConfig& config, const Accelerator* accelerator) {
  FoundOrders found;
  return plan_step_that_fits(config, run_target(config, accelerator), accelerator,
                             {mesh_of_one_rank(config), 0}, RankControl(), std::array{0}, found);
}

}  // namespace tessera
