#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/fingerprint.h"
#include "comm/piece_layout.h"
#include "device/stream.h"
#include "tensor/dtype.h"

namespace tessera {

// Kernels of collectives among devices. A library moves bytes between devices (DeviceLinks); these
// kernels sum and rearrange them in the memory of one device.

/// The operands of a reduction over the ranks: to[i] = addend_0[i] + addend_1[i] + ... in rank
/// order, or the maximum. The other ranks' addends are in slots, this rank's is elsewhere.
struct OrderedSum {
  const std::byte* slots = nullptr;       ///< one for each rank, in rank order, aligned to 16 bytes
  int64_t slot_bytes = 0;                 ///< of one slot, a multiple of 16
  const std::byte* own_addend = nullptr;  ///< the slot at `position` is not read
  int position = 0;                       ///< of this rank
  int ranks = 1;
  int64_t elements = 0;
  std::byte* to = nullptr;  ///< may be `own_addend`
};

/// Reduces the addends in the order of the ranks, with the bits of reduce() (comm/reduce.h).
void ordered_sum(const OrderedSum& sum, Reduction reduction, DType dtype, Stream& stream);

/// A copy of rows of bytes. The source and the destination may have different strides.
struct StridedCopy {
  const std::byte* from = nullptr;
  int64_t from_stride = 0;  ///< bytes from row to row
  std::byte* to = nullptr;
  int64_t to_stride = 0;
  int64_t rows = 0;
  int64_t row_bytes = 0;
};

void strided_copy(const StridedCopy& copy, Stream& stream);  ///< enqueues the copy

/// A range of the outer blocks of a layout (PieceLayout::outer()); `end` is one past the last.
struct OuterBlocks {
  int64_t begin = 0;
  int64_t end = 0;
};

/// The direction of a copy between the whole and a piece.
enum class PieceCopy : uint8_t { from_whole, to_whole };

/// Copies the elements of a rank's piece that are in these blocks, from the whole or to it. In the
/// memory of the piece they are contiguous, from its address on.
void copy_piece(PieceCopy direction, const PieceLayout& layout, int position,
                const OuterBlocks& blocks, int64_t element_bytes, const std::byte* from,
                std::byte* to, Stream& stream);

// The kernels behind ordered_sum() and strided_copy(), in ordered_sum.cu and strided_copy.cu.
template <typename Vendor>
void ordered_sum_device(const OrderedSum& sum, Reduction reduction, DType dtype, Stream& stream);
template <typename Vendor>
void strided_copy_device(const StridedCopy& copy, Stream& stream);

}  // namespace tessera
