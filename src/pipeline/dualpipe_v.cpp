// DualPipeV: on the V placement a rank has a forward of one of its chunks and a backward of the
// other to do at almost any time, so that the messages of the one can move during the other.

#include <array>
#include <deque>

#include "pipeline/generate.h"

namespace tessera {
namespace {

/// A list of one rank. Each chunk goes through its micro-batches in order.
class DualPipeList {
 public:
  /// The two ways of the V: down is the chunk in the first half of the model.
  enum Way : size_t { down, up };

  DualPipeList(int ranks, int rank) : chunks_{rank, 2 * ranks - 1 - rank} {}

  void forward(Way way) {
    actions_.push_back({ActionKind::forward, chunks_[way], forwards_[way]++});
  }
  void backward(Way way) {
    actions_.push_back({ActionKind::backward, chunks_[way], backwards_[way]++});
  }
  /// Adds the input gradients of a backward. The weight gradients wait in a queue.
  void split_backward(Way way) {
    const int micro_batch = backwards_[way]++;
    actions_.push_back({ActionKind::input_gradients, chunks_[way], micro_batch});
    waiting_.push_back({ActionKind::weight_gradients, chunks_[way], micro_batch});
  }
  /// Adds the weight gradients that have waited longest.
  void weight_gradients() {
    actions_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  bool has_waiting() const { return !waiting_.empty(); }
  std::vector<ChunkAction> take() { return std::move(actions_); }

 private:
  std::array<int, 2> chunks_;
  std::array<int, 2> forwards_{}, backwards_{};
  std::deque<ChunkAction> waiting_;
  std::vector<ChunkAction> actions_;
};

void add_warmup(DualPipeList& list, int rank, int after) {
  using enum DualPipeList::Way;
  for (int i = 0; i < 2 * after; ++i) list.forward(down);
  for (int i = 0; i < rank + 1; ++i) {
    list.forward(down);
    list.forward(up);
  }
  for (int i = 0; i < after; ++i) {
    list.split_backward(up);
    list.weight_gradients();
    list.forward(up);
  }
}

void add_end(DualPipeList& list, int rank, int after) {
  using enum DualPipeList::Way;
  for (int i = 0; i < after; ++i) {
    list.backward(up);
    list.forward(up);
    list.backward(down);
  }
  // 2 (rank + 1) backwards, of which the second half is split.
  for (int i = 0; i < 2 * (rank + 1); ++i) {
    const auto way = i % 2 == 0 ? up : down;
    if (i < rank + 1) {
      list.backward(way);
    } else {
      list.split_backward(way);
    }
  }
  for (int i = 0; i < after; ++i) {
    list.weight_gradients();
    list.split_backward(down);
  }
  while (list.has_waiting()) list.weight_gradients();
}

}  // namespace

ActionLists dualpipe_v(const PipelineShape& shape) {
  using enum DualPipeList::Way;
  ActionLists lists{.micro_batches = shape.micro_batches,
                    .placement = placement_of(ScheduleKind::dualpipe_v, shape.ranks, shape.chunks)};
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const int after = shape.ranks - rank - 1;  // ranks further down
    DualPipeList list(shape.ranks, rank);
    add_warmup(list, rank, after);
    for (int i = 0; i < shape.micro_batches - 2 * shape.ranks + rank + 1; ++i) {
      list.forward(down);
      list.backward(up);
      list.forward(up);
      list.backward(down);
    }
    add_end(list, rank, after);
    lists.ranks.push_back(list.take());
  }
  return lists;
}

}  // namespace tessera
