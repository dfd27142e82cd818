#pragma once

// Kernels move arrays in packs. A pack is the elements that one access to memory moves: 16 bytes,
// where the array allows it. This header is for files of kernels. It has the functions for packs,
// and functions that divide an array's elements among the threads of a grid.

#include <bit>
#include <cstdint>
#include <type_traits>

#include "device/kernel.h"

namespace tessera {
namespace {

/// The number of elements in 16 bytes.
template <typename T>
constexpr int kPackSize = 16 / sizeof(T);
// Without a use outside of templates, nvcc may not treat these numbers as constants in others.
static_assert(kPackSize<float> == 4 && kPackSize<BFloat16> == 8);

/// A pack. It is aligned to its own size, so that the compiler moves it by one access.
template <typename T, int size = kPackSize<T>>
struct alignas(size * sizeof(T)) Pack {
  T values[size];
};

/// Returns pack number `index` of an array that is aligned to packs.
template <int size, typename T>
__device__ inline Pack<T, size> load_pack(const T* array, int64_t index) {
  return reinterpret_cast<const Pack<T, size>*>(array)[index];
}
template <int size, typename T>
__device__ inline void store_pack(T* array, int64_t index, const Pack<T, size>& pack) {
  if constexpr (sizeof(pack) == 8) {  // nvcc would store 2 bytes at a time
    reinterpret_cast<uint64_t*>(array)[index] = std::bit_cast<uint64_t>(pack);
  } else {
    reinterpret_cast<Pack<T, size>*>(array)[index] = pack;
  }
}

/// Calls body(size) with the number of elements of a pack as a compile-time constant: `widest`, or
/// 1 if rows of `width` elements do not divide into packs of `widest`.
template <int widest, typename Body>
void with_pack_size(int64_t width, Body&& body) {
  if (width % widest == 0) {
    body(std::integral_constant<int, widest>{});
  } else {
    body(std::integral_constant<int, 1>{});
  }
}

/// Returns a grid with one thread for every `thread_elements` elements of an array.
template <int thread_elements>
Grid grid_of_elements(int64_t count) {
  constexpr int kThreads = 256;
  constexpr int64_t kBlockElements = int64_t{thread_elements} * kThreads;
  return {.blocks = (count + kBlockElements - 1) / kBlockElements, .threads = kThreads};
}

/// Calls body(first, count) for the elements of this thread of a grid_of_elements(). `first` is the
/// index of the first of `count` elements, a compile-time constant. A thread makes one call for
/// `thread_elements` elements. If fewer are left at the end of the array, it makes one for each.
template <int thread_elements, typename Body>
__device__ void for_my_elements(int64_t count, Body&& body) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t first = thread * thread_elements;
  if (first + thread_elements <= count) {
    body(first, std::integral_constant<int, thread_elements>{});
  } else {
    for (int64_t i = first; i < count; ++i) body(i, std::integral_constant<int, 1>{});
  }
}

}  // namespace
}  // namespace tessera
