#include "device/packs.h"
#include "ops/collective/narrow_kernels.h"

namespace tessera {
namespace {

// In f32 element i is in bytes 4i to 4i + 3, in bf16 in bytes 2i and 2i + 1. So the bf16 elements n
// to 2n - 1 have the bytes of the f32 elements n/2 to n - 1. A launch that converts elements n to
// 2n - 1 therefore does not overwrite elements that it still has to read. Narrowing launches ascend
// and widening launches descend, so that no launch overwrites elements of a later one. One block
// converts the first kHead elements. It reads all of them before it writes any.

constexpr int kHeadThreads = kMostThreads / 2;
constexpr int kThreadElements = 4;  // elements that a thread of convert_head() converts
constexpr int64_t kHead = int64_t{kThreadElements} * kHeadThreads;

/// Converts the first `elements` elements, kHead at most.
template <typename From, typename To>
__global__ void convert_head(void* memory, int64_t elements) {
  To converted[kThreadElements];
  const auto* const from = static_cast<const From*>(memory);
  for (int i = 0; i < kThreadElements; ++i) {
    const int64_t index = static_cast<int64_t>(threadIdx.x) + i * static_cast<int64_t>(blockDim.x);
    if (index < elements) converted[i] = static_cast<To>(static_cast<float>(from[index]));
  }
  __syncthreads();
  auto* const to = static_cast<To*>(memory);
  for (int i = 0; i < kThreadElements; ++i) {
    const int64_t index = static_cast<int64_t>(threadIdx.x) + i * static_cast<int64_t>(blockDim.x);
    if (index < elements) to[index] = converted[i];
  }
}

/// Converts elements [begin, begin + count), where begin is a multiple of kHead.
template <typename From, typename To, int pack_size>
__global__ void convert_range(void* memory, int64_t begin, int64_t count) {
  const auto* const from = static_cast<const From*>(memory) + begin;
  auto* const to = static_cast<To*>(memory) + begin;
  for_my_elements<pack_size>(count, [&](int64_t first, auto size) {
    const auto values = load_pack<size>(from + first, 0);
    Pack<To, size> converted;
    for (int i = 0; i < size; ++i) {
      converted.values[i] = static_cast<To>(static_cast<float>(values.values[i]));
    }
    store_pack(to + first, 0, converted);
  });
}

template <typename From, typename To>
void launch_head(void* memory, int64_t elements, Stream& stream) {
  launch(convert_head<From, To>, {.threads = kHeadThreads}, stream, memory,
         elements < kHead ? elements : kHead);
}

/// Converts elements [begin, 2 · begin), as far as they exist.
template <typename From, typename To>
void launch_range(void* memory, int64_t begin, int64_t elements, Stream& stream) {
  const int64_t count = begin < elements - begin ? begin : elements - begin;
  constexpr int kMaxPack = kPackSize<float>;
  if (reinterpret_cast<uintptr_t>(memory) % 16 == 0) {
    launch(convert_range<From, To, kMaxPack>, grid_of_elements<kMaxPack>(count), stream, memory,
           begin, count);
  } else {
    launch(convert_range<From, To, 1>, grid_of_elements<1>(count), stream, memory, begin, count);
  }
}

}  // namespace

template <typename Vendor>
void narrow_device(void* memory, int64_t elements, Stream& stream) {
  launch_head<float, BFloat16>(memory, elements, stream);
  for (int64_t begin = kHead; begin < elements; begin *= 2) {
    launch_range<float, BFloat16>(memory, begin, elements, stream);
  }
}

template <typename Vendor>
void widen_device(void* memory, int64_t elements, Stream& stream) {
  int64_t begin = kHead;
  while (begin < elements) begin *= 2;
  for (begin /= 2; begin >= kHead; begin /= 2) {
    launch_range<BFloat16, float>(memory, begin, elements, stream);
  }
  launch_head<BFloat16, float>(memory, elements, stream);
}

template void narrow_device<ThisVendor>(void*, int64_t, Stream&);
template void widen_device<ThisVendor>(void*, int64_t, Stream&);

}  // namespace tessera
