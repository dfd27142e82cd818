#include "verify/verify_size.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "base/words.h"
#include "config/check_context.h"
#include "config/mesh_of.h"
#include "config/pipeline_of.h"
#include "plan/balance_stages.h"
#include "verify/verify_memory.h"

namespace tessera {
namespace {

/// Returns in words what `computed` leaves out of `all`.
std::string omission_text(const TrialSize& all, const TrialSize& computed) {
  std::vector<std::string> parts;
  const auto add = [&](std::string_view key, int64_t whole, int64_t part) {
    if (whole != part) {
      parts.push_back(fmt::format("{} is {}, of which {} were computed", key, whole, part));
    }
  };
  add("train.micro_batch", all.micro_batch, computed.micro_batch);
  add("data.context", all.context, computed.context);
  return join(parts, "; ");
}

/// Returns a phase with other numbers of micro-batches in a step.
RunConfig with_micro_batches(const RunConfig& config, const Mesh& mesh, int micro_batches) {
  RunConfig result = config;
  result.train.global_batch = config.train.micro_batch * data_ranks(mesh) * micro_batches;
  return result;
}

/// Returns the number of micro-batches of a trial's steps: the fewest, from kTrialMicroBatches on,
/// for which there is the configured schedule. A schedule from a file has its own number.
int trial_micro_batches(const RunConfig& config, const Mesh& mesh) {
  if (model_chunks(config.parallel) == 1) return kTrialMicroBatches;
  const std::optional<ScheduleKind> kind = schedule_kind(config.parallel);
  PipelineShape shape = pipeline_shape(config, mesh);
  if (!kind) return shape.micro_batches;
  const int configured = shape.micro_batches;
  for (shape.micro_batches = std::max(kTrialMicroBatches, shape.ranks);
       shape.micro_batches < configured; ++shape.micro_batches) {
    if (shape_problem(*kind, shape).empty()) return shape.micro_batches;
  }
  return configured;
}

TrialPipeline pipeline_of(const RunConfig& config, const Mesh& mesh, int micro_batches) {
  if (model_chunks(config.parallel) == 1) return {};
  return {.ranges = chunk_ranges(with_stage_layers(config, mesh)),
          .schedule = pipeline_schedule(with_micro_batches(config, mesh, micro_batches), mesh),
          .recompute_stages = config.train.recompute_stages};
}

}  // namespace

std::vector<TrialSize> trial_sizes(const RunConfig& config, const Mesh& mesh, int64_t context) {
  if (context > 0) require_context(config, mesh, {"--context", context});
  const ParallelSection& parallel = config.parallel;
  const int64_t pieces = (parallel.context > 1 ? 2 * parallel.context : 1) * parallel.tensor;
  const auto whole_pieces = [&](int64_t positions) {
    return (positions + pieces - 1) / pieces * pieces;
  };
  std::vector<TrialSize> sizes{
      {config.train.micro_batch, context > 0 ? context : config.data.context}};
  const auto halve = [&](int64_t TrialSize::*extent, int64_t least, auto&& rounded) {
    while (sizes.back().*extent > least) {
      TrialSize next = sizes.back();
      next.*extent = std::max(least, rounded(next.*extent / 2));
      if (next.*extent >= sizes.back().*extent) return;
      sizes.push_back(next);
    }
  };
  const auto unchanged = [](int64_t extent) { return extent; };
  halve(&TrialSize::micro_batch, 4, unchanged);
  if (context == 0) halve(&TrialSize::context, whole_pieces(64), whole_pieces);
  halve(&TrialSize::micro_batch, 2, unchanged);
  return sizes;
}

LayoutTrial trial_of(const RunConfig& config, const Mesh& mesh, const TrialSize& size) {
  if (config.run.device != Device::cpu) {
    throw Error(
        "run.device is \"{}\": verify computes in fp64, on the processor; set it to \"cpu\"",
        word(config.run.device));
  }
  const int micro_batches = trial_micro_batches(config, mesh);
  return {.model = config.model,
          .optimizer = config.optimizer,
          .recompute = recompute_of(config.train.recompute),
          .size = {.sequences = size.micro_batch * data_ranks(mesh),
                   .context = size.context,
                   .document_mask = config.data.document_mask},
          .compute = compute_dtype(config.train.precision),
          .seed = config.train.seed,
          .mesh = mesh,
          .pipeline = pipeline_of(config, mesh, micro_batches),
          .experts = expert_layout(config.parallel),
          .shard = shard_plan(config.shard, mesh),
          .threads = static_cast<int>(config.run.threads),
          .rank_timeout = std::chrono::seconds(config.run.rank_timeout),
          .micro_batches = micro_batches,
          .overlap = config.parallel.overlap && mesh.ranks() > 1
                         ? std::optional(step_overlap(config, mesh).options)
                         : std::nullopt};
}

double verify_work(const LayoutTrial& trial, int steps) {
  const Chunk chunk = write_training(trial.model, DType::f64, trial.size, trial.recompute);
  double flops = 0;
  for (const Node& node : chunk.program.nodes()) {
    const Cost cost =
        node.operation->cost(chunk.program.specs(node.inputs), chunk.program.specs(node.outputs));
    flops += cost.flops + cost.repeated_flops;
  }
  return flops * trial.micro_batches * steps;
}

size_t first_within_work(const RunConfig& config, const Mesh& mesh,
                         const std::vector<TrialSize>& sizes, int steps, double limit) {
  size_t i = 0;
  while (i + 1 < sizes.size() && verify_work(trial_of(config, mesh, sizes[i]), steps) > limit) ++i;
  return i;
}

size_t first_that_fits(const RunConfig& config, const Mesh& mesh,
                       const std::vector<TrialSize>& sizes, int steps, int64_t memory, size_t from,
                       const std::optional<std::vector<int>>& local_ranks) {
  size_t i = from;
  while (i + 1 < sizes.size() &&
         verify_memory(trial_of(config, mesh, sizes[i]), steps, local_ranks).bytes() > memory) {
    ++i;
  }
  return i;
}

std::string cut_text(const RunConfig& config, const Mesh& mesh, const std::vector<TrialSize>& sizes,
                     size_t within, size_t chosen, int steps, double limit) {
  std::vector<std::string> parts;
  if (sizes[0].context != config.data.context) {
    parts.push_back(fmt::format("data.context is {}, and --context {} was computed",
                                config.data.context, sizes[0].context));
  }
  if (chosen > 0) {
    std::vector<std::string> reasons;
    if (within > 0) {
      reasons.push_back(
          fmt::format("so that one rank takes no more than {:.0e} floating-point operations "
                      "(--full lifts that)",
                      limit));
    }
    if (chosen > within) reasons.push_back("so that it fits in memory");
    parts.push_back(omission_text(sizes[0], sizes[chosen]) + ", " + join(reasons, " and "));
  }
  const double work = verify_work(trial_of(config, mesh, sizes[chosen]), steps);
  if (work > limit) {
    parts.push_back(fmt::format(
        "the smallest size takes {:.1e} floating-point operations on one rank, which is more than "
        "{:.0e} and may be long",
        work, limit));
  }
  return join(parts, "; ");
}

}  // namespace tessera
