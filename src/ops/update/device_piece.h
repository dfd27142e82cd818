#pragma once

// For kernels that handle the rows of a table (update_kernels.h).

#include <type_traits>

#include "device/kernel.h"
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

/// The piece of this block. Its row is the last one that begins at or before the block.
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
  const int64_t begin = (block - row.first_block) * Row::kOfBlock;
  const int64_t left = row.count - begin;
  return {row, begin, static_cast<int>(left < Row::kOfBlock ? left : Row::kOfBlock)};
}

inline constexpr int kPieceThreads = 256;
inline constexpr int kPiecePack = kPackSize<float>;

/// Calls body(i, number) for the piece's elements from i on that this thread handles, with their
/// number as a compile-time constant: kPiecePack where they are aligned as `first`, the piece's
/// first element, has it, or 1 before and after.
template <typename Body>
__device__ void for_elements_of_piece(const float* first, int count, Body&& body) {
  const auto thread = static_cast<int>(threadIdx.x);
  const uintptr_t place = reinterpret_cast<uintptr_t>(first) / sizeof(float) % kPiecePack;
  int head = place == 0 ? 0 : kPiecePack - static_cast<int>(place);
  if (head > count) head = count;
  const int packs = (count - head) / kPiecePack;
  for (int pack = thread; pack < packs; pack += kPieceThreads) {
    body(head + pack * kPiecePack, std::integral_constant<int, kPiecePack>{});
  }
  if (thread < count - packs * kPiecePack) {
    body(thread < head ? thread : thread + packs * kPiecePack, std::integral_constant<int, 1>{});
  }
}

template <typename Row>
Grid grid_of_pieces(const DeviceTable<Row>& table) {
  return {.blocks = table.blocks, .threads = kPieceThreads};
}

}  // namespace
}  // namespace tessera
