#include "train/save_shares.h"

#include <algorithm>

#include "comm/rank_sets.h"

namespace tessera {
namespace {

constexpr int64_t kCutsOfAShare = 4;  // pieces larger than a share divided by this are cut

/// A piece of a tensor, and the ranks that hold it.
struct HeldPiece {
  size_t tensor;
  RankSet ranks;
  TensorPiece piece;
  int64_t element_bytes;

  int64_t bytes() const { return piece.shape().elements() * element_bytes; }
};

/// Returns the pieces of all tensors, each with all ranks that hold it.
std::vector<HeldPiece> held_pieces(std::span<const KeptTensor* const> tensors,
                                   const StateShard& shard) {
  RankShards shards(shard);
  std::vector<HeldPiece> pieces;
  for (size_t number = 0; number < tensors.size(); ++number) {
    const KeptTensor& tensor = *tensors[number];
    for (const RankSet& ranks : sets_with_equal_parts(shard.mesh(), tensor.distribution)) {
      for (TensorPiece& piece : shards.of(ranks.front()).pieces(tensor.index, tensor.kind)) {
        pieces.push_back({number, ranks, std::move(piece), dtype_size(tensor.dtype)});
      }
    }
  }
  return pieces;
}

/// Cuts a piece into at most `parts` nearly equal pieces, along one dim.
std::vector<HeldPiece> cut(const HeldPiece& held, int64_t parts) {
  const Shape& shape = held.piece.shape();
  if (shape.rank() == 0 || parts < 2) return {held};
  int dim = 0;
  while (dim < shape.rank() && shape[dim] < parts) ++dim;
  if (dim == shape.rank()) {
    dim = static_cast<int>(std::ranges::max_element(shape.dims()) - shape.dims().begin());
  }
  const int64_t length = shape[dim];
  parts = std::min(parts, length);
  std::vector<ElementRun> dims;
  for (const int64_t extent : shape.dims()) dims.push_back({0, extent});
  std::vector<HeldPiece> result;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = i * length / parts;
    dims[static_cast<size_t>(dim)] = {begin, (i + 1) * length / parts - begin};
    result.push_back({held.tensor, held.ranks, held.piece.part(dims), held.element_bytes});
  }
  return result;
}

}  // namespace

std::vector<std::vector<Region>> save_shares(std::span<const KeptTensor* const> tensors,
                                             const StateShard& shard, int64_t least_cut) {
  const int all_ranks = shard.mesh().ranks();
  const std::vector<HeldPiece> held = held_pieces(tensors, shard);
  int64_t bytes = 0;
  for (const HeldPiece& piece : held) bytes += piece.bytes();
  const int64_t limit = std::max(least_cut, bytes / all_ranks / kCutsOfAShare);
  std::vector<HeldPiece> pieces;
  for (const HeldPiece& piece : held) {
    const auto most = static_cast<int64_t>(piece.ranks.size());
    const int64_t parts = std::min(most, (piece.bytes() + limit - 1) / limit);
    std::ranges::move(cut(piece, parts), std::back_inserter(pieces));
  }
  // Each piece, the largest first, goes to the rank with the least so far (greedy scheduling).
  std::ranges::stable_sort(pieces, std::ranges::greater(), &HeldPiece::bytes);
  std::vector<int64_t> loads(static_cast<size_t>(all_ranks));
  std::vector<std::vector<Region>> own(tensors.size());
  for (const HeldPiece& held_piece : pieces) {
    const int writer = *std::ranges::min_element(
        held_piece.ranks, {}, [&](int candidate) { return loads[static_cast<size_t>(candidate)]; });
    loads[static_cast<size_t>(writer)] += held_piece.bytes();
    if (writer != shard.rank()) continue;
    std::ranges::move(regions_of(held_piece.piece), std::back_inserter(own[held_piece.tensor]));
  }
  return own;
}

}  // namespace tessera
