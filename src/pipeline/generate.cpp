#include "pipeline/generate.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/words.h"
#include "pipeline/place_messages.h"

namespace tessera {
namespace {

std::string count_problem(const PipelineShape& shape) {
  if (shape.ranks < 1 || shape.chunks < 1 || shape.micro_batches < 1) {
    return fmt::format(
        "a pipeline needs at least 1 stage, 1 chunk and 1 micro-batch; found {} stages, {} chunks "
        "and {} micro-batches",
        shape.ranks, shape.chunks, shape.micro_batches);
  }
  if (shape.chunks < shape.ranks) {
    return fmt::format(
        "a pipeline of {} stages needs at least {} chunks, found {}: take fewer stages or cut the "
        "model into more chunks",
        shape.ranks, shape.ranks, shape.chunks);
  }
  return "";
}

std::string chunk_problem(ScheduleKind kind, int ranks, int chunks) {
  const bool single =
      kind == ScheduleKind::one_forward_one_backward || kind == ScheduleKind::zero_bubble_h1;
  if (is_v(kind) && chunks != 2 * ranks) {
    return fmt::format(
        "the schedule {} places 2 chunks on each stage, down the stages and up again: {} stages "
        "need {} chunks, found {}",
        word(kind), ranks, 2 * ranks, chunks);
  }
  if (single && chunks != ranks) {
    return fmt::format(
        "the schedule {} has one chunk a stage: {} stages need {} chunks, found {}{}", word(kind),
        ranks, ranks, chunks,
        kind == ScheduleKind::zero_bubble_h1 ? "; zb-v has two"
                                             : "; interleaved and flexible take several");
  }
  if (chunks % ranks != 0) {
    return fmt::format(
        "the schedule {} has equally many chunks on each stage: found {} chunks for {} "
        "stages, expected a multiple of {}",
        word(kind), chunks, ranks, ranks);
  }
  return "";
}

std::string micro_batch_problem(ScheduleKind kind, const PipelineShape& shape) {
  if (kind == ScheduleKind::interleaved && shape.micro_batches % shape.ranks != 0) {
    return fmt::format(
        "the schedule interleaved needs a multiple of its {} stages in micro-batches, found {}; "
        "flexible takes any number",
        shape.ranks, shape.micro_batches);
  }
  if (kind == ScheduleKind::dualpipe_v && shape.micro_batches < 2 * shape.ranks) {
    return fmt::format(
        "the schedule dualpipe-v over {} stages needs at least {} micro-batches, found {}; zb-v "
        "takes any number",
        shape.ranks, 2 * shape.ranks, shape.micro_batches);
  }
  return "";
}

std::string consecutive_problem(ScheduleKind kind, const PipelineShape& shape) {
  if (!shape.consecutive_micro_batches) return "";
  const int consecutive = *shape.consecutive_micro_batches;
  if (kind != ScheduleKind::flexible && kind != ScheduleKind::all_forward_all_backward) {
    return fmt::format(
        "the schedule {} has no choice of consecutive micro-batches, found {}: leave it out, or "
        "take flexible",
        word(kind), consecutive);
  }
  if (consecutive < 1 || consecutive > shape.micro_batches) {
    return fmt::format(
        "consecutive micro-batches of a chunk: found {}, expected 1 to the number of micro-batches "
        "({})",
        consecutive, shape.micro_batches);
  }
  return "";
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
  if (const std::string problem = chunk_problem(kind, ranks, chunks); !problem.empty()) {
    throw Error(problem);
  }
}

ChunkPlacement placement_of(ScheduleKind kind, int ranks, int chunks) {
  require_chunks(kind, ranks, chunks);
  return is_v(kind) ? v_placement(ranks) : loop_placement(ranks, chunks / ranks);
}

std::string shape_problem(ScheduleKind kind, const PipelineShape& shape) {
  std::string problem = count_problem(shape);
  if (problem.empty()) problem = chunk_problem(kind, shape.ranks, shape.chunks);
  if (problem.empty()) problem = micro_batch_problem(kind, shape);
  if (problem.empty()) problem = consecutive_problem(kind, shape);
  return problem;
}

void require_shape(ScheduleKind kind, const PipelineShape& shape) {
  if (const std::string problem = shape_problem(kind, shape); !problem.empty()) {
    throw Error(problem);
  }
}

PipelineSchedule generate(ScheduleKind kind, const PipelineShape& shape) {
  require_shape(kind, shape);
  ActionLists lists = lists_of(kind, shape);
  lists.name = word(kind);
  return place_messages(std::move(lists));
}

}  // namespace tessera
