#include "pipeline/generate.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/words.h"
#include "pipeline/place_messages.h"

namespace tessera {
namespace {

void require_counts(const PipelineShape& shape) {
  if (shape.ranks < 1 || shape.chunks < 1 || shape.micro_batches < 1) {
    throw Error(
        "a pipeline needs at least 1 stage, 1 chunk and 1 micro-batch; found {} stages, {} chunks "
        "and {} micro-batches",
        shape.ranks, shape.chunks, shape.micro_batches);
  }
  if (shape.chunks < shape.ranks) {
    throw Error(
        "a pipeline of {} stages needs at least {} chunks, found {}: take fewer stages or cut the "
        "model into more chunks",
        shape.ranks, shape.ranks, shape.chunks);
  }
}

void require_micro_batches(ScheduleKind kind, const PipelineShape& shape) {
  if (kind == ScheduleKind::interleaved && shape.micro_batches % shape.ranks != 0) {
    throw Error(
        "the schedule interleaved needs a multiple of its {} stages in micro-batches, found {}; "
        "flexible takes any number",
        shape.ranks, shape.micro_batches);
  }
  if (kind == ScheduleKind::dualpipe_v && shape.micro_batches < 2 * shape.ranks) {
    throw Error(
        "the schedule dualpipe-v over {} stages needs at least {} micro-batches, found {}; zb-v "
        "takes any number",
        shape.ranks, 2 * shape.ranks, shape.micro_batches);
  }
}

void require_consecutive(ScheduleKind kind, const PipelineShape& shape) {
  if (!shape.consecutive_micro_batches) return;
  const int consecutive = *shape.consecutive_micro_batches;
  if (kind != ScheduleKind::flexible && kind != ScheduleKind::all_forward_all_backward) {
    throw Error(
        "the schedule {} has no choice of consecutive micro-batches, found {}: leave it out, or "
        "take flexible",
        word(kind), consecutive);
  }
  if (consecutive < 1 || consecutive > shape.micro_batches) {
    throw Error(
        "consecutive micro-batches of a chunk: found {}, expected 1 to the number of micro-batches "
        "({})",
        consecutive, shape.micro_batches);
  }
}

ActionLists lists_of(ScheduleKind kind, const PipelineShape& shape) {
  switch (kind) {
    case ScheduleKind::all_forward_all_backward:
      return all_forward_all_backward(shape);
    case ScheduleKind::one_forward_one_backward:
      return one_forward_one_backward(shape);
    case ScheduleKind::interleaved:
      return interleaved(shape);
    case ScheduleKind::flexible:
      return flexible(shape);
    case ScheduleKind::zero_bubble_h1:
      return zero_bubble_h1(shape);
    case ScheduleKind::zero_bubble_v:
      return zero_bubble_v(shape);
    case ScheduleKind::dualpipe_v:
      return dualpipe_v(shape);
  }
  throw InternalError("unknown ScheduleKind");
}

}  // namespace

bool is_v(ScheduleKind kind) {
  return kind == ScheduleKind::zero_bubble_v || kind == ScheduleKind::dualpipe_v;
}

void require_chunks(ScheduleKind kind, int ranks, int chunks) {
  const bool single =
      kind == ScheduleKind::one_forward_one_backward || kind == ScheduleKind::zero_bubble_h1;
  if (is_v(kind) && chunks != 2 * ranks) {
    throw Error(
        "the schedule {} places 2 chunks on each stage, down the stages and up again: {} stages "
        "need {} chunks, found {}",
        word(kind), ranks, 2 * ranks, chunks);
  }
  if (single && chunks != ranks) {
    throw Error("the schedule {} has one chunk a stage: {} stages need {} chunks, found {}{}",
                word(kind), ranks, ranks, chunks,
                kind == ScheduleKind::zero_bubble_h1 ? "; zb-v has two"
                                                     : "; interleaved and flexible take several");
  }
  if (chunks % ranks != 0) {
    throw Error(
        "the schedule {} has equally many chunks on each stage: found {} chunks for {} "
        "stages, expected a multiple of {}",
        word(kind), chunks, ranks, ranks);
  }
}

ChunkPlacement placement_of(ScheduleKind kind, int ranks, int chunks) {
  require_chunks(kind, ranks, chunks);
  return is_v(kind) ? v_placement(ranks) : loop_placement(ranks, chunks / ranks);
}

void require_shape(ScheduleKind kind, const PipelineShape& shape) {
  require_counts(shape);
  require_chunks(kind, shape.ranks, shape.chunks);
  require_micro_batches(kind, shape);
  require_consecutive(kind, shape);
}

PipelineSchedule generate(ScheduleKind kind, const PipelineShape& shape) {
  require_shape(kind, shape);
  ActionLists lists = lists_of(kind, shape);
  lists.name = word(kind);
  return place_messages(std::move(lists));
}

}  // namespace tessera
