#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/worded.h"
#include "pipeline/schedule.h"

namespace tessera {

/// The schedules that are computed. docs/pipelines.md compares them.
enum class ScheduleKind {
  all_forward_all_backward,
  one_forward_one_backward,
  interleaved,
  flexible,
  zero_bubble_h1,
  zero_bubble_v,
  dualpipe_v,
};
template <>
inline constexpr std::array<std::string_view, 7> kWordsOf<ScheduleKind>{
    "gpipe", "1f1b", "interleaved", "flexible", "zb-h1", "zb-v", "dualpipe-v"};

/// What a schedule is computed for.
struct PipelineShape {
  int ranks = 1;   ///< pipeline stages: pp
  int chunks = 1;  ///< of the model, over all ranks: pp * v
  int micro_batches = 1;
  /// The micro-batches that a chunk takes one after the other before the rank goes on to its next
  /// chunk (nc), from 1 to `micro_batches`; for `gpipe` and `flexible`. By default all of them, or
  /// as many as there are ranks.
  std::optional<int> consecutive_micro_batches;
};

/// Returns whether a schedule has the V placement: two chunks on each stage, down the stages and up
/// again. All others have the loop placement.
bool is_v(ScheduleKind kind);

/// Throws Error, with what to change, if a schedule does not exist for these numbers of ranks and
/// chunks, whatever the number of micro-batches.
void require_chunks(ScheduleKind kind, int ranks, int chunks);

/// Returns the placement that the schedule has for any number of micro-batches. Throws Error as
/// require_chunks() does.
ChunkPlacement placement_of(ScheduleKind kind, int ranks, int chunks);

/// Returns why a schedule does not exist for the shape, and what to change; empty if it exists.
std::string shape_problem(ScheduleKind kind, const PipelineShape& shape);

/// Throws Error with shape_problem() if there is one.
void require_shape(ScheduleKind kind, const PipelineShape& shape);

/// Returns a schedule with its messages. validate() finds nothing wrong with it. Throws Error as
/// require_shape() does.
PipelineSchedule generate(ScheduleKind kind, const PipelineShape& shape);

// One function a schedule. generate() calls require_shape() first.

/// Returns all forwards, then all backwards (GPipe; Huang et al., 2019). A rank with several chunks
/// takes them in groups of nc micro-batches (Llama 3, section 3.1.1 and figure 4).
ActionLists all_forward_all_backward(const PipelineShape& shape);

/// Returns 1F1B (PipeDream-Flush; Narayanan et al., 2021, section 2.2.1): rank r runs pp - r - 1
/// forwards, then one forward and one backward in turn.
ActionLists one_forward_one_backward(const PipelineShape& shape);

/// Returns interleaved 1F1B (Narayanan et al., 2021, section 2.2.2) over v chunks a rank, of which
/// each takes pp micro-batches at a time. The number of micro-batches is a multiple of pp.
ActionLists interleaved(const PipelineShape& shape);

/// Returns the flexible schedule (Llama 3, section 3.1.1): interleaved 1F1B with any number of
/// micro-batches, of which a chunk takes nc at a time. A last group of fewer than pp joins the one
/// before it, because the order deadlocks otherwise. Where it deadlocks nevertheless, as it mostly
/// does for nc < pp, all forwards run before all backwards, in groups of nc.
ActionLists flexible(const PipelineShape& shape);

/// Returns ZB-H1 (Qi et al., "Zero Bubble Pipeline Parallelism", section 2): 1F1B whose weight
/// gradients are computed later, to fill the bubble. Rank r defers up to r of them, so no rank has
/// more in flight than the first.
ActionLists zero_bubble_h1(const PipelineShape& shape);

/// Returns ZB-V ("Zero Bubble Pipeline Parallelism", section 6), as
/// the fixed order for equal times that PyTorch has: no rank idles between its first and its last
/// action. With fewer than 2 * pp - 1 micro-batches, those that are missing are left out of it.
ActionLists zero_bubble_v(const PipelineShape& shape);

/// Returns DualPipeV (DeepSeek's DualPipe repository). Its forwards and backwards that overlap are
/// listed one after the other, the forward first. Needs 2 * pp micro-batches.
ActionLists dualpipe_v(const PipelineShape& shape);

}  // namespace tessera
