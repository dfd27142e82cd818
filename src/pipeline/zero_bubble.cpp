// Schedules whose backward passes are split: the input gradients at once, since the chunk before
// waits for them, and the weight gradients when there is time.

#include <algorithm>

#include "pipeline/generate.h"

namespace tessera {
namespace {

/// A list of one rank with two chunks. Each kind of action goes through the micro-batches of each
/// chunk in order, so an action needs no number.
class ZeroBubbleList {
 public:
  /// The two ways of the V: down is the chunk in the first half of the model.
  enum Way : size_t { down, up };

  ZeroBubbleList(int ranks, int rank, int micro_batches)
      : chunks_{rank, 2 * ranks - 1 - rank}, micro_batches_(micro_batches) {}

  void forward(Way way) { add(ActionKind::forward, way, forwards_[way]++); }
  void input_gradients(Way way) { add(ActionKind::input_gradients, way, inputs_[way]++); }
  void weight_gradients(Way way) { add(ActionKind::weight_gradients, way, weights_[way]++); }
  void both_gradients(Way way) {
    input_gradients(way);
    weight_gradients(way);
  }
  int forwards(Way way) const { return forwards_[way]; }
  /// Adds the weight gradients that are still missing of a chunk.
  void all_weight_gradients(Way way) {
    while (weights_[way] < inputs_[way]) weight_gradients(way);
  }
  std::vector<ChunkAction> take() { return std::move(actions_); }

 private:
  void add(ActionKind kind, Way way, int micro_batch) {
    // The order is one for at least 2 pp - 1 micro-batches.
    if (micro_batch < micro_batches_) actions_.push_back({kind, chunks_[way], micro_batch});
  }

  std::array<int, 2> chunks_;
  int micro_batches_;
  std::array<int, 2> forwards_{}, inputs_{}, weights_{};
  std::vector<ChunkAction> actions_;
};

std::vector<ChunkAction> zero_bubble_v_list(int ranks, int rank, int micro_batches) {
  using enum ZeroBubbleList::Way;
  ZeroBubbleList list(ranks, rank, micro_batches);
  const int complete = std::max(micro_batches, 2 * ranks - 1);
  const int after = ranks - rank;
  // Warm-up: forwards down until the first micro-batch has come up again, then both ways in turn.
  for (int i = 0; i < 2 * after - 1; ++i) list.forward(down);
  for (int i = 0; i < rank; ++i) {
    list.forward(up);
    list.forward(down);
  }
  // On the way up the gradients come back at once.
  for (int i = 0; i < after; ++i) {
    list.forward(up);
    list.both_gradients(up);
  }
  // Steady: a forward and a whole backward, down and up in turn.
  while (list.forwards(up) < complete) {
    if (list.forwards(down) < complete) list.forward(down);
    list.both_gradients(down);
    list.forward(up);
    list.both_gradients(up);
  }
  // The end: the input gradients first, for the ranks that wait; the weight gradients fill the
  // rest.
  for (int i = 0; i < rank; ++i) {
    list.input_gradients(down);
    list.input_gradients(up);
  }
  for (int i = 0; i < after; ++i) {
    list.input_gradients(down);
    list.weight_gradients(down);
  }
  list.all_weight_gradients(up);
  list.all_weight_gradients(down);
  return list.take();
}

/// Returns the list of ZB-H1 for one rank. `deferred` is the number of weight gradients that may
/// wait after a backward.
std::vector<ChunkAction> zero_bubble_h1_list(int chunk, int warmup, int deferred,
                                             int micro_batches) {
  std::vector<ChunkAction> actions;
  for (int i = 0; i < warmup; ++i) actions.push_back({ActionKind::forward, chunk, i});
  int weights = 0;
  for (int i = 0; i < micro_batches; ++i) {
    if (warmup + i < micro_batches) actions.push_back({ActionKind::forward, chunk, warmup + i});
    actions.push_back({ActionKind::input_gradients, chunk, i});
    if (i + 1 - weights > deferred) {
      actions.push_back({ActionKind::weight_gradients, chunk, weights++});
    }
  }
  for (; weights < micro_batches; ++weights) {
    actions.push_back({ActionKind::weight_gradients, chunk, weights});
  }
  return actions;
}

}  // namespace

ActionLists zero_bubble_h1(const PipelineShape& shape) {
  ActionLists lists{
      .micro_batches = shape.micro_batches,
      .placement = placement_of(ScheduleKind::zero_bubble_h1, shape.ranks, shape.chunks)};
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const int warmup = std::min(shape.micro_batches, shape.ranks - 1 - rank);
    lists.ranks.push_back(zero_bubble_h1_list(rank, warmup, rank, shape.micro_batches));
  }
  return lists;
}

ActionLists zero_bubble_v(const PipelineShape& shape) {
  ActionLists lists{
      .micro_batches = shape.micro_batches,
      .placement = placement_of(ScheduleKind::zero_bubble_v, shape.ranks, shape.chunks)};
  for (int rank = 0; rank < shape.ranks; ++rank) {
    lists.ranks.push_back(zero_bubble_v_list(shape.ranks, rank, shape.micro_batches));
  }
  return lists;
}

}  // namespace tessera
