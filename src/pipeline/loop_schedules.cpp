// The schedules on the placement in which chunk c is on rank c mod pp. All are one family: a table
// of (chunk, micro-batch) gives the order of the forwards, and of the backwards with the rank's
// chunks reversed. Rank r runs its first forwards alone (the warm-up), then a forward and a
// backward in turn, and the last backwards alone.

#include <algorithm>

#include "pipeline/clock.h"
#include "pipeline/generate.h"
#include "pipeline/place_messages.h"

namespace tessera {
namespace {

/// A row of the table. The chunk is counted on its rank, from 0.
struct TableRow {
  int local_chunk = 0;
  int micro_batch = 0;
};

int chunks_per_rank(const PipelineShape& shape) { return shape.chunks / shape.ranks; }

/// Returns the first micro-batch of each group of `consecutive`. A remainder of fewer than
/// `shortest` is part of the group before it.
std::vector<int> group_begins(int micro_batches, int consecutive, int shortest) {
  std::vector<int> begins;
  for (int first = 0; first < micro_batches; first += consecutive) begins.push_back(first);
  const int remainder = micro_batches % consecutive;
  if (begins.size() > 1 && remainder > 0 && remainder < shortest) begins.pop_back();
  return begins;
}

/// Returns the size of the largest group.
int largest_group(const std::vector<int>& begins, int micro_batches) {
  int largest = 0;
  for (size_t i = 0; i < begins.size(); ++i) {
    const int end = i + 1 < begins.size() ? begins[i + 1] : micro_batches;
    largest = std::max(largest, end - begins[i]);
  }
  return largest;
}

std::vector<TableRow> order_table(const PipelineShape& shape, const std::vector<int>& begins) {
  std::vector<TableRow> table;
  for (size_t i = 0; i < begins.size(); ++i) {
    const int end = i + 1 < begins.size() ? begins[i + 1] : shape.micro_batches;
    for (int chunk = 0; chunk < chunks_per_rank(shape); ++chunk) {
      for (int micro_batch = begins[i]; micro_batch < end; ++micro_batch) {
        table.push_back({chunk, micro_batch});
      }
    }
  }
  return table;
}

/// Returns one rank's actions, `warmup` forwards of them before the first backward.
std::vector<ChunkAction> list_with_warmup(const PipelineShape& shape, int rank, size_t warmup,
                                          const std::vector<TableRow>& table) {
  const auto forward = [&](const TableRow& row) {
    return ChunkAction{ActionKind::forward, row.local_chunk * shape.ranks + rank, row.micro_batch};
  };
  const auto backward = [&](const TableRow& row) {
    const int local_chunk = chunks_per_rank(shape) - 1 - row.local_chunk;
    return ChunkAction{ActionKind::backward, local_chunk * shape.ranks + rank, row.micro_batch};
  };
  warmup = std::min(warmup, table.size());
  std::vector<ChunkAction> actions;
  for (size_t i = 0; i < warmup; ++i) actions.push_back(forward(table[i]));
  for (size_t i = warmup; i < table.size(); ++i) {
    actions.push_back(forward(table[i]));
    actions.push_back(backward(table[i - warmup]));
  }
  for (size_t i = table.size() - warmup; i < table.size(); ++i) {
    actions.push_back(backward(table[i]));
  }
  return actions;
}

/// Returns the lists of all ranks. `warmup(rank)` is the number of forwards before the first pair.
template <typename Warmup>
ActionLists loop_lists(ScheduleKind kind, const PipelineShape& shape,
                       const std::vector<int>& begins, const Warmup& warmup) {
  ActionLists lists{.micro_batches = shape.micro_batches,
                    .placement = placement_of(kind, shape.ranks, shape.chunks)};
  const std::vector<TableRow> table = order_table(shape, begins);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    lists.ranks.push_back(list_with_warmup(shape, rank, static_cast<size_t>(warmup(rank)), table));
  }
  return lists;
}

/// Returns the lists of interleaved 1F1B in groups of `consecutive` micro-batches. The warm-up of
/// rank r is 2 (pp - r - 1) + (v - 1) nc forwards, and pp - r - 1 with one chunk a rank.
ActionLists one_forward_one_backward_in_groups(ScheduleKind kind, const PipelineShape& shape,
                                               int consecutive) {
  const std::vector<int> begins = group_begins(shape.micro_batches, consecutive, shape.ranks);
  const int largest = largest_group(begins, shape.micro_batches);
  const int chunks = chunks_per_rank(shape);
  return loop_lists(kind, shape, begins, [&](int rank) {
    const int after = shape.ranks - rank - 1;  // ranks
    return chunks == 1 ? after : 2 * after + (chunks - 1) * largest;
  });
}

}  // namespace

ActionLists all_forward_all_backward(const PipelineShape& shape) {
  const int consecutive = shape.consecutive_micro_batches.value_or(shape.micro_batches);
  return loop_lists(ScheduleKind::all_forward_all_backward, shape,
                    group_begins(shape.micro_batches, consecutive, 0),
                    [&](int /*rank*/) { return shape.micro_batches * chunks_per_rank(shape); });
}

ActionLists one_forward_one_backward(const PipelineShape& shape) {
  return one_forward_one_backward_in_groups(ScheduleKind::one_forward_one_backward, shape,
                                            shape.micro_batches);
}

ActionLists interleaved(const PipelineShape& shape) {
  return one_forward_one_backward_in_groups(ScheduleKind::interleaved, shape, shape.ranks);
}

ActionLists flexible(const PipelineShape& shape) {
  const int consecutive =
      shape.consecutive_micro_batches.value_or(std::min(shape.ranks, shape.micro_batches));
  ActionLists lists =
      one_forward_one_backward_in_groups(ScheduleKind::flexible, shape, consecutive);
  if (!deadlocks(place_messages(lists))) return lists;
  PipelineShape groups = shape;
  groups.consecutive_micro_batches = consecutive;
  return all_forward_all_backward(groups);
}

}  // namespace tessera
