#include "comm/device_kernels.h"
#include "device/packs.h"

namespace tessera {
namespace {

// A copy of rows whose source and destination have different strides. It moves units of 16, 4, 2 or
// 1 bytes: the largest to which all addresses, strides and the row length are aligned.

/// Copies one unit in each thread: to[row * to_stride + i] = from[row * from_stride + i], in bytes.
template <typename Unit>
__global__ void copy_units(StridedCopy copy) {
  const int64_t row_units = copy.row_bytes / static_cast<int64_t>(sizeof(Unit));
  const int64_t unit = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (unit >= copy.rows * row_units) return;
  const int64_t row = unit / row_units, column = unit % row_units;
  const auto* const from = reinterpret_cast<const Unit*>(copy.from + row * copy.from_stride);
  auto* const to = reinterpret_cast<Unit*>(copy.to + row * copy.to_stride);
  to[column] = from[column];
}

template <typename Unit>
void launch_copy(const StridedCopy& copy, Stream& stream) {
  const int64_t units = copy.rows * (copy.row_bytes / static_cast<int64_t>(sizeof(Unit)));
  launch(copy_units<Unit>, grid_of_elements<1>(units), stream, copy);
}

}  // namespace

template <typename Vendor>
void strided_copy_device(const StridedCopy& copy, Stream& stream) {
  // The lowest set bit of the union is the common alignment.
  const uint64_t alignment_bits =
      reinterpret_cast<uintptr_t>(copy.from) | reinterpret_cast<uintptr_t>(copy.to) |
      static_cast<uint64_t>(copy.row_bytes | copy.from_stride | copy.to_stride);
  if (alignment_bits % 16 == 0) {
    launch_copy<Pack<uint32_t, 4>>(copy, stream);
  } else if (alignment_bits % 4 == 0) {
    launch_copy<uint32_t>(copy, stream);
  } else if (alignment_bits % 2 == 0) {
    launch_copy<uint16_t>(copy, stream);
  } else {
    launch_copy<uint8_t>(copy, stream);
  }
}

template void strided_copy_device<ThisVendor>(const StridedCopy&, Stream&);

}  // namespace tessera
