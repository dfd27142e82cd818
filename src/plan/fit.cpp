// fit_on() compares a plan with an accelerator. It finds whether the plan's arena fits the memory,
// the largest micro-batch that fits, and the least time of a step by the roofline.

#include "plan/fit.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "config/mesh_of.h"
#include "config/pipeline_of.h"
#include "engine/action.h"
#include "pipeline/generate.h"
#include "plan/product_peak.h"
#include "plan/run_target.h"
#include "program/program.h"

namespace tessera {
namespace {

/// Returns the divisors of a number, ascending.
std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> result;
  for (int64_t i = 1; i * i <= number; ++i) {
    if (number % i != 0) continue;
    result.push_back(i);
    if (i * i < number) result.push_back(number / i);
  }
  std::ranges::sort(result);
  return result;
}

/// Returns whether the pipeline has a schedule with this micro-batch: some take only certain
/// numbers of micro-batches a step, and a schedule from a file takes only its own.
bool has_schedule(const RunConfig& config, int64_t micro_batch, const Mesh& mesh) {
  RunConfig changed = config;
  changed.train.micro_batch = micro_batch;
  const PipelineShape shape = pipeline_shape(changed, mesh);
  const std::optional<ScheduleKind> kind = schedule_kind(config.parallel);
  return kind ? shape_problem(*kind, shape).empty()
              : shape.micro_batches == pipeline_shape(config, mesh).micro_batches;
}

/// Finds the largest micro-batch that fits. Makes plans for a few of the possible sizes only, by a
/// binary search, because a larger micro-batch takes more memory.
void find_micro_batch(Fit& fit, const RunConfig& config, const MeshRank& mesh_rank) {
  const Target target = run_target(config, fit.accelerator);
  const auto arena_bytes = [&](int64_t micro_batch) {
    if (micro_batch == config.train.micro_batch) return fit.needed_bytes;
    RunConfig changed = config;
    changed.train.micro_batch = micro_batch;
    return plan_step(changed, target, mesh_rank).memory.arena_bytes;
  };
  std::vector<int64_t> choices = divisors(config.train.global_batch / data_ranks(mesh_rank.mesh));
  std::erase_if(choices, [&](int64_t micro_batch) {
    return !has_schedule(config, micro_batch, mesh_rank.mesh);
  });
  fit.least_micro_batch = choices.front();  // there is one: the configured one has a schedule
  fit.least_bytes = arena_bytes(choices.front());
  if (fit.least_bytes > fit.usable_bytes()) return;
  // The first choice fits, so the search begins with the second one.
  const auto too_large = std::partition_point(
      choices.begin() + 1, choices.end(),
      [&](int64_t micro_batch) { return arena_bytes(micro_batch) <= fit.usable_bytes(); });
  fit.largest_micro_batch = *std::prev(too_large);
}

/// Adds the floors of a program that runs `runs` times a step. The floor of an operation is
/// max(FLOPs / peak, bytes / bandwidth).
void add_floors(Fit& fit, const Program& program, double runs) {
  for (const int index : segment_nodes(program, Segment::whole)) {
    const Node& node = program.nodes()[static_cast<size_t>(index)];
    const Cost cost = node_cost(program, node);
    const double compute = (cost.flops + cost.repeated_flops) / fit.gemm_flops;
    const double memory = cost.bytes / fit.memory_bandwidth;
    (compute >= memory ? fit.compute_seconds : fit.memory_seconds) +=
        runs * std::max(compute, memory);
  }
}

}  // namespace

Fit fit_on(const RunConfig& config, const StepPlan& plan, const Hardware& hardware) {
  Fit fit{.accelerator = hardware.accelerator.value(),
          .needed_bytes = plan.memory.arena_bytes,
          .state_bytes = plan.memory.kept_bytes,
          .ranks = plan.mesh_rank().mesh.ranks(),
          .measured = !hardware.gemms.empty() && !hardware.memory.empty(),
          .gemm_flops = product_peak(hardware, config),
          .memory_bandwidth = hardware.memory_bandwidth()};
  find_micro_batch(fit, config, plan.mesh_rank());
  const auto micro_batches = static_cast<double>(plan.micro_batches);
  fit.useful_flops = plan.flops.useful() * micro_batches;
  fit.tokens = config.train.global_batch * config.data.context;
  for (const Chunk& chunk : plan.programs.chunks()) add_floors(fit, chunk.program, micro_batches);
  add_floors(fit, plan.programs.start, 1);
  add_floors(fit, plan.programs.update.program, 1);
  return fit;
}

std::string fit_text(const Fit& fit, const RunConfig& config) {
  const Figure<int64_t>& memory = fit.accelerator.memory_bytes;
  const bool tf32 = rounds_to_tf32(config, fit.accelerator.device);
  std::string text =
      fmt::format("\non {}: {}FLOP/s in {}, {}B/s of memory ({})\n", describe(fit.accelerator),
                  format_count(fit.gemm_flops), tf32 ? "tf32" : word(config.train.precision),
                  format_count(fit.memory_bandwidth), fit.measured ? "measured" : "data sheet");
  text +=
      fmt::format("  needs {} of {}{}, less {} for libraries, kernels and graphs: {}\n",
                  format_bytes(fit.needed_bytes),
                  memory.origin == Origin::driver ? "" : "at least ", format_bytes(memory.value),
                  format_bytes(kDeviceReserve), fit.fits() ? "fits" : "does not fit");
  if (fit.largest_micro_batch > 0) {
    text += fmt::format(
        "  train.micro_batch = {} is the largest that fits{}\n", fit.largest_micro_batch,
        fit.largest_micro_batch == config.train.global_batch ? " (the whole train.global_batch)"
                                                             : "");
  } else {
    text +=
        fmt::format("  no train.micro_batch fits: {} takes {}, {} of it states\n",
                    fit.least_micro_batch == 1
                        ? "one sequence"
                        : fmt::format("{}, the smallest of the schedule,", fit.least_micro_batch),
                    format_bytes(fit.least_bytes), format_bytes(fit.state_bytes));
  }
  if (!fit.fits()) {
    text += fmt::format("  to make it fit: {}\n",
                        memory_advice(config, fit.state_bytes, fit.usable_bytes()));
  }
  text += fmt::format(
      "  a step of {} tokens takes at least {}: {} in operations that the peak of products limits, "
      "{} in those that the bandwidth limits; at most {} tokens/s, MFU {:.0f} %\n",
      fit.tokens, format_seconds(fit.seconds()), format_seconds(fit.compute_seconds),
      format_seconds(fit.memory_seconds),
      format_count(static_cast<double>(fit.tokens) / fit.seconds()), 100 * fit.mfu());
  if (fit.ranks > 1) {
    text += "  that is one rank's own work; what the ranks send is not timed\n";
  }
  if (!fit.measured) {
    text +=
        "  computed from a data sheet: nothing was measured, and what the driver takes of the\n"
        "  memory is not counted\n";
  }
  return text;
}

nlohmann::ordered_json fit_json(const Fit& fit) {
  return {{"accelerator", accelerator_json(fit.accelerator)},
          {"source", fit.measured ? "measured" : "data sheet"},
          {"needed_bytes", fit.needed_bytes},
          {"memory_bytes", fit.accelerator.memory_bytes.value},
          {"reserve_bytes", kDeviceReserve},
          {"fits", fit.fits()},
          {"largest_micro_batch", fit.largest_micro_batch},
          {"least_bytes", fit.least_bytes},
          {"least_step_seconds", fit.seconds()},
          {"compute_seconds", fit.compute_seconds},
          {"memory_seconds", fit.memory_seconds},
          {"most_mfu", fit.mfu()}};
}

}  // namespace tessera
