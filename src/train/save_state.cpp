#include "train/save_state.h"

#include <algorithm>

#include "checkpoint/save.h"
#include "comm/piece_layout.h"

namespace tessera {
namespace {

constexpr int kNoMore = -1;  // what the first rank says when it has written all tensors

bool lies_whole(const StateTensor& tensor) { return tensor.tensor.shape() == tensor.spec->shape; }

Tensor whole_of(const StateTensor& tensor, RankGroups& groups) {
  return gather_whole(tensor.tensor, tensor.spec->distribution, groups);
}

/// The tensors as the first rank writes them. It asks the others for those that lie in pieces.
std::vector<GroupStream> streams(const StateToSave& save, const StateRanks& ranks) {
  std::vector<GroupStream> result;
  for (const StateTensor& tensor : save.tensors) {
    if (lies_whole(tensor)) {
      result.push_back({tensor.group, stream_of({tensor.name, tensor.tensor})});
      continue;
    }
    const auto number = static_cast<int>(result.size());
    const auto produce = [&tensor, &ranks, number](const ByteSink& sink) {
      ranks.control.tell(number);
      const Tensor whole = whole_of(tensor, ranks.runtime.groups());
      sink({whole.raw(), static_cast<size_t>(whole.bytes())});
    };
    result.push_back(
        {tensor.group, {tensor.name, tensor.tensor.dtype(), tensor.spec->shape, produce}});
  }
  return result;
}

}  // namespace

Tensor gather_whole(const Tensor& piece, const Distribution& distribution, RankGroups& groups) {
  Tensor whole = piece;
  for (int dim = 0; dim < piece.shape().rank(); ++dim) {
    for (const Axis axis : distribution.joining_order(dim)) {
      const int ranks = groups.mesh().size(axis);
      if (ranks == 1) continue;
      const TypeOnAxis& type = distribution.on(axis);
      const Shape shape = joined_shape(whole.shape(), type, ranks);
      const Tensor joined(shape, piece.dtype());
      groups.over(std::span(&axis, 1), kControlLane)
          .all_gather("gather_whole", pieces_of(shape, type, ranks), whole, joined);
      whole = joined;
    }
  }
  return whole;
}

void save_state(const StateToSave& save, int threads, const StateRanks& ranks) {
  if (ranks.control.first()) {
    // A group's calls come from one thread at a time.
    const bool whole = std::ranges::all_of(save.tensors, lies_whole);
    save_streams(save.directory, save.state, streams(save, ranks), save.carried,
                 {.threads = whole ? threads : 1});
    ranks.control.tell(kNoMore);
    return;
  }
  for (int number = ranks.control.tell(0); number != kNoMore; number = ranks.control.tell(0)) {
    whole_of(save.tensors[static_cast<size_t>(number)], ranks.runtime.groups());
  }
}

}  // namespace tessera
