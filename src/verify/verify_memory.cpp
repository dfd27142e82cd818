#include "verify/verify_memory.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"
#include "engine/memory_plan.h"
#include "ops/host_target.h"

namespace tessera {
namespace {

MemoryPlan plan_of(const StepPrograms& programs, int threads) {
  return plan_memory(programs.list(), programs.actions(), host_target(threads));
}

/// Returns the bytes that a ValueStream keeps of a micro-batch: those of all floating results.
int64_t value_stream_bytes(const Program& program) {
  int64_t bytes = 0;
  for (const Node& node : program.nodes()) {
    if (node.operation->view(0)) continue;
    for (const Value output : node.outputs) {
      if (is_floating(program.spec(output).dtype)) bytes += program.spec(output).bytes();
    }
  }
  return bytes;
}

/// Returns the bytes of the values that compare_values() keeps of a rank.
int64_t stream_bytes(const LayoutTrial& trial, const StepPrograms& programs) {
  int64_t bytes = 0;
  for (const Chunk& chunk : programs.chunks()) bytes += value_stream_bytes(chunk.program);
  return trial.pipeline.has_chunks() ? bytes * trial.micro_batches : bytes;
}

int64_t sum_of_parts(const VerifyMemory& memory) {
  return memory.one_rank + memory.layout + memory.results + memory.streams;
}

}  // namespace

VerifyMemory VerifyMemory::peak() const {
  std::vector<VerifyMemory> phases{{.layout = layout, .results = results},
                                   {.one_rank = one_rank, .results = 2 * results}};
  if (streams > 0) {
    phases.push_back({.one_rank = one_rank, .results = results, .streams = streams});
    phases.push_back({.layout = layout, .results = results, .streams = streams});
  }
  return *std::ranges::max_element(phases, {}, sum_of_parts);
}

int64_t VerifyMemory::bytes() const { return sum_of_parts(peak()); }

VerifyMemory verify_memory(const LayoutTrial& trial, int steps,
                           const std::optional<std::vector<int>>& local_ranks) {
  VerifyMemory memory;
  LayoutTrial exact_trial = trial;
  exact_trial.mesh = Mesh();
  exact_trial.compute = DType::f64;
  const StepPrograms programs = layout_programs(exact_trial, 0);
  const MemoryPlan plan = plan_of(programs, trial.threads);
  memory.one_rank = plan.arena_bytes;
  memory.states = plan.kept_bytes;
  // The gradients of each step, the masters, and the weights that the ranks compute with.
  memory.results = (steps + 2) * programs.model.parameters.elements() * dtype_size(DType::f64);
  memory.streams = stream_bytes(trial, programs);
  exact_trial.mesh = trial.mesh;
  FoundOrders found;
  const int rank_count = local_ranks ? static_cast<int>(local_ranks->size()) : trial.mesh.ranks();
  for (int rank = 0; rank < trial.mesh.ranks(); ++rank) {
    if (local_ranks && !std::ranges::binary_search(*local_ranks, rank)) continue;
    const StepPrograms rank_programs = layout_programs(exact_trial, rank, found);
    const int threads = threads_of_rank(trial.threads, rank_count);
    const MemoryPlan rank_plan = plan_of(rank_programs, threads);
    memory.layout += rank_plan.arena_bytes;
    memory.layout_states += rank_plan.kept_bytes;
    memory.streams += stream_bytes(trial, rank_programs);
  }
  if (local_ranks) memory.streams = 0;
  // The machine of the first rank alone runs the one rank and has the results.
  if (local_ranks && !std::ranges::binary_search(*local_ranks, 0)) {
    memory.one_rank = memory.states = memory.results = 0;
  }
  return memory;
}

void require_verify_memory(const LayoutTrial& trial, int steps, const UsableMemory& memory,
                           const std::optional<std::vector<int>>& local_ranks) {
  const VerifyMemory needed = verify_memory(trial, steps, local_ranks);
  if (needed.bytes() <= memory.bytes) return;
  const bool small_batches_help = std::max(needed.states + 2 * needed.results,
                                           needed.layout_states + needed.results) <= memory.bytes;
  const VerifyMemory peak = needed.peak();
  std::vector<std::string> parts;
  const auto add = [&](int64_t bytes, const std::string& what) {
    if (bytes > 0) parts.push_back(format_bytes(bytes) + " for " + what);
  };
  add(peak.one_rank, "one rank");
  add(peak.layout,
      fmt::format("the {} ranks of the layout",
                  local_ranks ? std::ssize(*local_ranks) : std::ptrdiff_t{trial.mesh.ranks()}));
  add(peak.results, "gradients and weights that are compared");
  add(peak.streams, "the values of a micro-batch, to name the first that differs");
  throw Error(
      "this verification needs {} of memory, because it trains in fp64 with all ranks {} ({}), "
      "and {}; {}",
      format_bytes(needed.bytes()), local_ranks ? "of this machine" : "in one process",
      join(parts, ", "), memory.text(),
      small_batches_help
          ? fmt::format(
                "lower --steps ({}), --context ({}), train.micro_batch or --ranks, or take a "
                "smaller model",
                steps, trial.size.context)
          : fmt::format("only a smaller model helps (model.layers is {}), because weights, "
                        "gradients and the optimizer's states alone do not fit",
                        trial.model.layers));
}

}  // namespace tessera
