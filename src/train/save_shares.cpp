#include "train/save_shares.h"

#include <algorithm>

#include "comm/rank_sets.h"

namespace tessera {
namespace {

constexpr int64_t kCutsOfAShare = 4;  // a piece of more than this part of a rank's share is cut

/// A piece of a tensor, and the ranks that hold it.
struct HeldPiece {
  size_t tensor;
  RankSet ranks;
  PieceRuns runs;
  int64_t bytes;
};

std::vector<HeldPiece> held_pieces(const Mesh& mesh, std::span<const TensorOnRanks> tensors) {
  std::vector<HeldPiece> pieces;
  for (size_t number = 0; number < tensors.size(); ++number) {
    const auto& [distribution, element_bytes, pieces_of] = tensors[number];
    for (const RankSet& ranks : sets_with_equal_parts(mesh, distribution)) {
      for (const TensorPiece& piece : pieces_of(ranks.front())) {
        const int64_t bytes = piece.shape().elements() * element_bytes;
        pieces.push_back({number, ranks, piece.runs(), bytes});
      }
    }
  }
  return pieces;
}

int64_t length_of(const std::vector<ElementRun>& runs) {
  int64_t length = 0;
  for (const ElementRun& run : runs) length += run.length;
  return length;
}

/// The elements [begin, end) of those that the runs have.
std::vector<ElementRun> part_of(const std::vector<ElementRun>& runs, int64_t begin, int64_t end) {
  std::vector<ElementRun> part;
  int64_t at = 0;
  for (const ElementRun& run : runs) {
    const int64_t from = std::max(begin, at);
    const int64_t to = std::min(end, at + run.length);
    if (from < to) part.push_back({run.place + from - at, to - from});
    at += run.length;
  }
  return part;
}

/// Cuts a piece into at most `parts` nearly equal ones, along one dim.
std::vector<HeldPiece> cut(const HeldPiece& piece, int64_t parts) {
  const auto wide = [&](const std::vector<ElementRun>& runs) { return length_of(runs) >= parts; };
  auto dim = std::ranges::find_if(piece.runs, wide);
  if (dim == piece.runs.end()) dim = std::ranges::max_element(piece.runs, {}, length_of);
  if (dim == piece.runs.end() || parts < 2) return {piece};
  const int64_t length = length_of(*dim);
  parts = std::min(parts, length);
  std::vector<HeldPiece> result;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = i * length / parts;
    const int64_t end = (i + 1) * length / parts;
    result.push_back(piece);
    result.back().runs[static_cast<size_t>(dim - piece.runs.begin())] = part_of(*dim, begin, end);
    result.back().bytes = piece.bytes / length * (end - begin);
  }
  return result;
}

}  // namespace

std::vector<std::vector<Region>> save_shares(const Mesh& mesh, int rank,
                                             std::span<const TensorOnRanks> tensors,
                                             int64_t least_cut) {
  const std::vector<HeldPiece> held = held_pieces(mesh, tensors);
  int64_t bytes = 0;
  for (const HeldPiece& piece : held) bytes += piece.bytes;
  const int64_t limit = std::max(least_cut, bytes / mesh.ranks() / kCutsOfAShare);
  std::vector<HeldPiece> pieces;
  for (const HeldPiece& piece : held) {
    const auto most = static_cast<int64_t>(piece.ranks.size());
    const int64_t parts = std::min(most, (piece.bytes + limit - 1) / limit);
    std::ranges::move(cut(piece, parts), std::back_inserter(pieces));
  }
  // The largest first, each to the rank that has least: the usual way to make sums equal.
  std::ranges::stable_sort(pieces, std::ranges::greater(), &HeldPiece::bytes);
  std::vector<int64_t> loads(static_cast<size_t>(mesh.ranks()));
  std::vector<std::vector<Region>> own(tensors.size());
  for (const HeldPiece& piece : pieces) {
    const int writer = *std::ranges::min_element(
        piece.ranks, {}, [&](int candidate) { return loads[static_cast<size_t>(candidate)]; });
    loads[static_cast<size_t>(writer)] += piece.bytes;
    if (writer == rank)
      std::ranges::move(boxes_of(piece.runs), std::back_inserter(own[piece.tensor]));
  }
  return own;
}

}  // namespace tessera
