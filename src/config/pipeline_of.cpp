#include "config/pipeline_of.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/words.h"
#include "config/mesh_of.h"
#include "config/read_for_key.h"
#include "pipeline/place_messages.h"
#include "pipeline/schedule_file.h"

namespace tessera {
namespace {

/// Throws Error unless each chunk takes the micro-batches in their order, as one rank does, in its
/// forward passes and where it computes weight gradients. Routers' counts of a step and their
/// biases follow the first order. The second one is that in which gradients are added up.
void require_order_of_micro_batches(const PipelineSchedule& schedule) {
  std::map<std::pair<int, bool>, int> next;  // by chunk and "is forward": the next micro-batch
  for (const std::vector<ScheduleEntry>& list : schedule.ranks) {
    for (const ScheduleEntry& entry : list) {
      const auto* const action = std::get_if<ChunkAction>(&entry);
      if (action == nullptr || action->kind == ActionKind::input_gradients) continue;
      int& expected = next[{action->chunk, action->kind == ActionKind::forward}];
      if (action->micro_batch != expected) {
        throw Error(
            "found the {}, expected micro-batch {} there: a chunk takes them in their order",
            words_for(*action), expected);
      }
      ++expected;
    }
  }
}

/// Returns the schedule of the file that parallel.schedule names, for a number of micro-batches or,
/// without one, for any.
PipelineSchedule schedule_of_file(const ParallelSection& parallel,
                                  std::optional<int> micro_batches) {
  return read_for_key("parallel.schedule", parallel.schedule, [&] {
    const std::vector<std::string> kinds = words_of<ScheduleKind>();
    if (!fs::exists(parallel.schedule)) {
      const std::string nearest = nearest_name(parallel.schedule, kinds);
      throw Error("there is no such file, and no such schedule among {}{}", join(kinds, ", "),
                  nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
    }
    PipelineSchedule schedule =
        read_schedule(parallel.schedule, static_cast<int>(parallel.pipeline), micro_batches);
    require_order_of_micro_batches(schedule);
    if (schedule.placement.chunks() != model_chunks(parallel)) {
      throw Error(
          "found a schedule for {} chunks, expected {}: parallel.pipeline ({}) * "
          "parallel.virtual_stages ({}); change one of them or the file",
          schedule.placement.chunks(), model_chunks(parallel), parallel.pipeline,
          parallel.virtual_stages);
    }
    return schedule;
  });
}

std::vector<int64_t> layers_of_chunks(const RunConfig& config) {
  const StageLayers& given = config.parallel.stage_layers;
  const int64_t chunks = model_chunks(config.parallel);
  if (chunks == 1) return {config.model.layers};
  TESSERA_CHECK(!given.balanced, "the layers of {} chunks are not balanced yet", chunks);
  return given.counts.empty() ? even_layers(config.model.layers, chunks) : given.counts;
}

}  // namespace

int64_t model_chunks(const ParallelSection& parallel) {
  return parallel.pipeline * parallel.virtual_stages;
}

std::optional<ScheduleKind> schedule_kind(const ParallelSection& parallel) {
  const bool one_chunk_a_stage = parallel.virtual_stages == 1;
  if (model_chunks(parallel) == 1 || (parallel.schedule.empty() && one_chunk_a_stage)) {
    return ScheduleKind::one_forward_one_backward;
  }
  return parallel.schedule.empty() ? ScheduleKind::interleaved
                                   : value_of_word<ScheduleKind>(parallel.schedule);
}

bool takes_consecutive_micro_batches(const ParallelSection& parallel) {
  const std::optional<ScheduleKind> kind = schedule_kind(parallel);
  return kind == ScheduleKind::all_forward_all_backward || kind == ScheduleKind::flexible;
}

int64_t default_virtual_stages(const ParallelSection& parallel) {
  const auto kind = value_of_word<ScheduleKind>(parallel.schedule);
  return kind && is_v(*kind) && parallel.pipeline > 1 ? 2 : 1;
}

PipelineShape pipeline_shape(const RunConfig& phase, const Mesh& mesh) {
  const ParallelSection& parallel = phase.parallel;
  const TrainSection& train = phase.train;
  PipelineShape shape{.ranks = static_cast<int>(parallel.pipeline),
                      .chunks = static_cast<int>(model_chunks(parallel)),
                      .micro_batches = static_cast<int>(train.global_batch /
                                                        (train.micro_batch * data_ranks(mesh)))};
  if (parallel.consecutive_micro_batches > 0 && takes_consecutive_micro_batches(parallel)) {
    shape.consecutive_micro_batches = static_cast<int>(parallel.consecutive_micro_batches);
  }
  return shape;
}

PipelineSchedule pipeline_schedule(const RunConfig& phase, const Mesh& mesh) {
  const std::optional<ScheduleKind> kind = schedule_kind(phase.parallel);
  const PipelineShape shape = pipeline_shape(phase, mesh);
  return in_halves(kind ? generate(*kind, shape)
                        : schedule_of_file(phase.parallel, shape.micro_batches));
}

ChunkPlacement chunk_placement(const ParallelSection& parallel) {
  const std::optional<ScheduleKind> kind = schedule_kind(parallel);
  return kind ? placement_of(*kind, static_cast<int>(parallel.pipeline),
                             static_cast<int>(model_chunks(parallel)))
              : schedule_of_file(parallel, std::nullopt).placement;
}

std::vector<int64_t> even_layers(int64_t layers, int64_t chunks) {
  std::vector<int64_t> counts(static_cast<size_t>(chunks), layers / chunks);
  const int64_t more = layers % chunks;  // chunks with one more
  for (int64_t i = 0; i < more; ++i) ++counts[static_cast<size_t>(chunks - 2 - i)];
  return counts;
}

std::vector<ChunkRange> chunk_ranges(const RunConfig& config) {
  const std::vector<int64_t> counts = layers_of_chunks(config);
  const int64_t layers = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  TESSERA_CHECK(
      std::ssize(counts) == model_chunks(config.parallel) && layers == config.model.layers,
      "{} chunks with {} layers for a model of {} in {} chunks", counts.size(), layers,
      config.model.layers, model_chunks(config.parallel));
  std::vector<ChunkRange> ranges;
  int64_t first = 0;
  for (const int64_t count : counts) {
    ranges.push_back({.layers = {.first = first, .end = first + count},
                      .embedding = ranges.empty(),
                      .head = ranges.size() + 1 == counts.size()});
    first += count;
  }
  return ranges;
}

bool recomputes(std::span<const int64_t> stages, int stage) {
  return stages.empty() || std::ranges::find(stages, stage) != stages.end();
}

std::vector<RecomputedBlock> recomputed_on(const TrainSection& train, int stage) {
  return recomputes(train.recompute_stages, stage) ? train.recompute
                                                   : std::vector<RecomputedBlock>();
}

}  // namespace tessera
