#pragma once

#include <array>
#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The function that map_device() applies to each element. Some functions have an argument.
enum class ElementMap {
  copy,   ///< the element itself
  scale,  ///< the element times the argument
  clamp,  ///< the element, limited to [-argument, argument]
};

/// The addends of one sum. Each is of float or BFloat16, or all are of double.
struct Addends {
  static constexpr int kMost = 64;  ///< the largest number of addends of a sum on a device
  std::array<const void*, kMost> elements{};
  std::array<bool, kMost> are_bf16{};
  int count = 0;
};

// The device kernels, for From, To, Total and T of float and BFloat16. They put their work into the
// stream. All arrays have `count` elements and are aligned to 64 bytes.

/// Computes to[i] = map(from[i]).
template <typename Vendor, typename From, typename To>
void map_device(ElementMap map, double argument, const From* from, To* to, int64_t count,
                Stream& stream);
/// Computes total[i] += addend[i].
template <typename Vendor, typename Total, typename T>
void accumulate_device(Total* total, const T* addend, int64_t count, Stream& stream);
/// Computes result[i] = gradient[i] where x[i] is within [-bound, bound], otherwise 0.
template <typename Vendor, typename T>
void clamp_gradient_device(double bound, const T* x, const T* gradient, T* result, int64_t count,
                           Stream& stream);
/// Computes sum[i] = the sum of all addends, added in order in f32 and rounded once. If To is
/// double, so are all addends and the sum. `sum` may be in the first addend's memory.
template <typename Vendor, typename To>
void add_device(const Addends& addends, To* sum, int64_t count, Stream& stream);

}  // namespace tessera
