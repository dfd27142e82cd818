#include <algorithm>

#include "device/kernel.h"
#include "ops/moe/grouped_kernels.h"

namespace tessera {
namespace {

/// Elements of T, which divides the bytes and the address of the result.
template <typename T>
__global__ void clear_rest_rows(RestClearing clearing) {
  const int64_t row_elements = clearing.row_bytes / static_cast<int64_t>(sizeof(T));
  const int64_t end = clearing.rows * row_elements;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  T* const result = reinterpret_cast<T*>(clearing.result);
  for (int64_t i = *clearing.last_offset * row_elements +
                   static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < end; i += step) {
    result[i] = T{};
  }
}

template <typename T>
void launch_clear_rest(const RestClearing& clearing, Stream& stream) {
  constexpr int64_t kMostBlocks = 256;
  constexpr int kThreads = 256;
  const int64_t elements = clearing.rows * clearing.row_bytes / static_cast<int64_t>(sizeof(T));
  launch(clear_rest_rows<T>,
         {.blocks = std::min(kMostBlocks, (elements + kThreads - 1) / kThreads),
          .threads = kThreads},
         stream, clearing);
}

}  // namespace

template <typename Vendor>
void clear_rest_device(const RestClearing& clearing, Stream& stream) {
  using Bytes16 = Pack<uint32_t>;
  if (clearing.row_bytes % 16 == 0) return launch_clear_rest<Bytes16>(clearing, stream);
  launch_clear_rest<uint16_t>(clearing, stream);
}

template void clear_rest_device<ThisVendor>(const RestClearing&, Stream&);

}  // namespace tessera
