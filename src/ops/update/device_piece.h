#pragma once

// The parts that kernels over a DeviceTable (update_kernels.h) share. Each block of threads handles
// a piece of one row of the table: Row::kPerBlock elements, or fewer at the end of the row.

#include <type_traits>

#include "device/packs.h"
#include "ops/update/update_kernels.h"

namespace tessera {
namespace {

/// The part of a row that a block handles: `count` elements from `begin` on.
template <typename Row>
struct Piece {
  Row row;
  int64_t begin;
  int count;
};

/// Returns the piece of this block. Its row is the last one that begins at or before the block.
template <typename Row>
__device__ Piece<Row> piece_of_block(const DeviceTable<Row>& table) {
  const auto block = static_cast<int64_t>(blockIdx.x);
  int64_t low = 0, high = table.count - 1;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (table.rows[middle].first_block <= block) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const Row row = table.rows[low];
  const int64_t begin = (block - row.first_block) * Row::kPerBlock;
  const int64_t remaining = row.count - begin;
  return {row, begin, static_cast<int>(remaining < Row::kPerBlock ? remaining : Row::kPerBlock)};
}

inline constexpr int kPieceThreads = 256;            // threads of a block
inline constexpr int kPiecePack = kPackSize<float>;  // elements that are moved in one access

/// Calls body(i, n) for each run of elements that this thread handles: the n elements from element
/// i of the piece on. n is a compile-time constant: kPiecePack for runs that begin at an aligned
/// address, and 1 for the elements before and after these runs. `first` is the address of the
/// piece's first element. The other arrays of the row are aligned alike.
template <typename Body>
__device__ void for_elements_of_piece(const float* first, int count, Body&& body) {
  const auto thread = static_cast<int>(threadIdx.x);
  // `head` elements come before the first aligned address. These and the elements after the last
  // pack are fewer than the threads, so each thread handles at most one of them.
  const uintptr_t offset = reinterpret_cast<uintptr_t>(first) / sizeof(float) % kPiecePack;
  int head = offset == 0 ? 0 : kPiecePack - static_cast<int>(offset);
  if (head > count) head = count;
  const int packs = (count - head) / kPiecePack;
  for (int pack = thread; pack < packs; pack += kPieceThreads) {
    body(head + pack * kPiecePack, std::integral_constant<int, kPiecePack>{});
  }
  if (thread < count - packs * kPiecePack) {
    body(thread < head ? thread : thread + packs * kPiecePack, std::integral_constant<int, 1>{});
  }
}

/// Returns a grid with a block for each piece.
template <typename Row>
Grid grid_of_pieces(const DeviceTable<Row>& table) {
  return {.blocks = table.blocks, .threads = kPieceThreads};
}

}  // namespace
}  // namespace tessera
