#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/fingerprint.h"
#include "comm/piece_layout.h"
#include "device/stream.h"
#include "tensor/dtype.h"

namespace tessera {

// The kernels of collectives among devices: what a library of collectives does not do as we do it.

/// Addends of all ranks: one lies apart, the others in slots, rank by rank.
struct OrderedSum {
  const std::byte* slots = nullptr;  ///< that of rank 0 first, aligned to 16 bytes
  int64_t slot_bytes = 0;            ///< of one, a multiple of 16
  const std::byte* own = nullptr;    ///< the addend at `position`, whose slot is not read
  int position = 0;
  int ranks = 1;
  int64_t elements = 0;
  std::byte* to = nullptr;  ///< may be `own`
};

/// Reduces the addends in the order of the ranks, with the bits of reduce() (comm/reduce.h).
void ordered_sum(const OrderedSum& sum, Reduction reduction, DType dtype, Stream& stream);

/// Rows of bytes that lie at two distances.
struct StridedCopy {
  const std::byte* from = nullptr;
  int64_t from_stride = 0;  ///< bytes from row to row
  std::byte* to = nullptr;
  int64_t to_stride = 0;
  int64_t rows = 0;
  int64_t row_bytes = 0;
};

void strided_copy(const StridedCopy& copy, Stream& stream);

/// Outer blocks [begin, end) of a layout.
struct OuterBlocks {
  int64_t begin = 0;
  int64_t end = 0;
};

/// Copies these blocks of the piece of the rank at a position from the whole to `piece`, which
/// begins with them. Elements have `size` bytes.
void copy_from_whole(const PieceLayout& layout, int position, const OuterBlocks& blocks,
                     int64_t size, const std::byte* whole, std::byte* piece, Stream& stream);
/// The same from the piece to the whole.
void copy_to_whole(const PieceLayout& layout, int position, const OuterBlocks& blocks, int64_t size,
                   const std::byte* piece, std::byte* whole, Stream& stream);

template <typename Vendor>
void ordered_sum_device(const OrderedSum& sum, Reduction reduction, DType dtype, Stream& stream);
template <typename Vendor>
void strided_copy_device(const StridedCopy& copy, Stream& stream);

}  // namespace tessera
