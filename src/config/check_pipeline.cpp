#include "config/check_pipeline.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "config/mesh_of.h"
#include "config/pipeline_of.h"

namespace tessera {
namespace {

/// The most forward passes of a step, over all chunks. A schedule lists each of them.
constexpr int64_t kMostPasses = int64_t{1} << 22;

/// Returns "parallel.pipeline (4) * parallel.virtual_stages (2) is 8 chunks".
std::string chunks_text(const ParallelSection& parallel) {
  return fmt::format("parallel.pipeline ({}) * parallel.virtual_stages ({}) is {} chunks",
                     parallel.pipeline, parallel.virtual_stages, model_chunks(parallel));
}

/// Checks that the numbers of parallel.stage_layers are layers of the chunks.
void check_given_layers(const RunConfig& config, Contradictions& found) {
  const std::vector<int64_t>& counts = config.parallel.stage_layers.counts;
  if (std::ssize(counts) != model_chunks(config.parallel)) {
    found.add("parallel.stage_layers has {} numbers; expected one for each chunk, and {}",
              counts.size(), chunks_text(config.parallel));
    return;
  }
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (sum != config.model.layers) {
    found.add(
        "the numbers of parallel.stage_layers add up to {}; expected model.layers ({}): change one "
        "of them",
        sum, config.model.layers);
  }
  for (size_t chunk = 1; chunk + 1 < counts.size(); ++chunk) {
    if (counts[chunk] > 0) continue;
    found.add(
        "parallel.stage_layers gives 0 to chunk {} of {}, counted from 0; only the first and the "
        "last chunk, which have the embedding and the head, may have no layer",
        chunk, counts.size());
  }
}

/// Checks that there are enough layers for chunks whose numbers of layers are not given.
void check_enough_layers(const RunConfig& config, Contradictions& found) {
  const int64_t chunks = model_chunks(config.parallel);
  const int64_t layers = config.model.layers;
  const bool without_ends = chunks <= layers + 2;  // if both end chunks have no layer
  if (chunks <= layers || (without_ends && config.parallel.stage_layers.balanced)) return;
  found.add("{}, too many for model.layers ({}); lower one of the two{}",
            chunks_text(config.parallel), layers,
            without_ends ? ", or give parallel.stage_layers with 0 for the first and the last chunk"
                         : "");
}

/// Checks that train.recompute_stages names stages, each once.
void check_recomputing_stages(const RunConfig& config, Contradictions& found) {
  const std::vector<int64_t>& stages = config.train.recompute_stages;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i] >= config.parallel.pipeline) {
      found.add(
          "train.recompute_stages names stage {}; expected 0 to {}, as parallel.pipeline is {}",
          stages[i], config.parallel.pipeline - 1, config.parallel.pipeline);
    }
    if (std::find(stages.begin(), stages.begin() + static_cast<std::ptrdiff_t>(i), stages[i]) !=
        stages.begin() + static_cast<std::ptrdiff_t>(i)) {
      found.add("train.recompute_stages names stage {} twice; expected each stage once", stages[i]);
    }
  }
}

}  // namespace

void check_pipeline(const RunConfig& config, Contradictions& found) {
  const ParallelSection& parallel = config.parallel;
  if (model_chunks(parallel) == 1) return;
  const bool given = !parallel.stage_layers.balanced && !parallel.stage_layers.counts.empty();
  given ? check_given_layers(config, found) : check_enough_layers(config, found);
  check_recomputing_stages(config, found);
  const std::optional<ScheduleKind> kind = schedule_kind(parallel);
  if (!kind || model_chunks(parallel) > config.model.layers + 2) return;
  try {
    require_chunks(*kind, static_cast<int>(parallel.pipeline),
                   static_cast<int>(model_chunks(parallel)));
  } catch (const Error& error) {
    found.add("{}: {}; change parallel.virtual_stages or parallel.schedule", chunks_text(parallel),
              error.what());
  }
}

void check_schedule(const RunPhase& phase, const Mesh& mesh, Contradictions& found) {
  const ParallelSection& parallel = phase.config.parallel;
  const TrainSection& train = phase.config.train;
  const int64_t ranks = data_ranks(mesh);
  if (model_chunks(parallel) == 1 || train.global_batch % (train.micro_batch * ranks) != 0) return;
  const int64_t micro_batches = train.global_batch / (train.micro_batch * ranks);
  const std::string account =
      fmt::format("{} ({}) / ({} ({}) * {}) is {} micro-batches a step", phase.global_batch_key,
                  train.global_batch, phase.micro_batch_key, train.micro_batch,
                  data_ranks_text(ranks), micro_batches);
  if (micro_batches > kMostPasses / model_chunks(parallel)) {
    found.add("{}, and {}; expected at most {} passes in all: choose a larger micro-batch", account,
              chunks_text(parallel), kMostPasses);
    return;
  }
  if (parallel.consecutive_micro_batches > micro_batches &&
      takes_consecutive_micro_batches(parallel)) {
    found.add("parallel.consecutive_micro_batches ({}): {}; expected at most that, or 0",
              parallel.consecutive_micro_batches, account);
    return;
  }
  try {
    if (const std::optional<ScheduleKind> kind = schedule_kind(parallel)) {
      require_shape(*kind, pipeline_shape(phase.config, mesh));
    } else {
      pipeline_schedule(phase.config, mesh);
    }
  } catch (const Error& error) {
    found.add("{}: {}", account, error.what());
  }
}

}  // namespace tessera
