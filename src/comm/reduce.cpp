#include "comm/reduce.h"

#include <algorithm>
#include <cmath>

#include "base/bfloat16.h"
#include "base/error.h"
#include "base/words.h"

namespace tessera {
namespace {

/// The number of elements that are reduced at a time, in a buffer that fits into the L1 cache.
constexpr int64_t kBufferElements = 2048;

struct Add {
  template <typename T>
  T operator()(T total, T value) const {
    return total + value;
  }
};

/// The larger of two values; NaN if one of them is NaN.
struct Larger {
  template <typename T>
  T operator()(T total, T value) const {
    return total > value || std::isnan(total) ? total : value;
  }
};

/// to[i] = combine(...combine(addend_0[i], addend_1[i])..., addend_n[i]) from `begin` on, in Total.
template <typename Element, typename Total, typename Combine>
void reduce_elements(std::span<const std::byte* const> addends, int64_t begin, int64_t elements,
                     std::byte* to, Combine combine) {
  Total totals[kBufferElements];
  const auto addend = [&](size_t index, int64_t first) {
    return reinterpret_cast<const Element*>(addends[index]) + begin + first;
  };
  for (int64_t first = 0; first < elements; first += kBufferElements) {
    const int64_t count = std::min(kBufferElements, elements - first);
    const Element* values = addend(0, first);
    for (int64_t i = 0; i < count; ++i) totals[i] = static_cast<Total>(values[i]);
    for (size_t index = 1; index < addends.size(); ++index) {
      values = addend(index, first);
      for (int64_t i = 0; i < count; ++i) {
        totals[i] = combine(totals[i], static_cast<Total>(values[i]));
      }
    }
    Element* results = reinterpret_cast<Element*>(to) + first;
    for (int64_t i = 0; i < count; ++i) results[i] = static_cast<Element>(totals[i]);
  }
}

}  // namespace

bool can_reduce(Reduction reduction, DType dtype) {
  if (dtype == DType::f64 || dtype == DType::f32) return true;
  return reduction != Reduction::maximum && (dtype == DType::bf16 || dtype == DType::i32);
}

void reduce(Reduction reduction, DType dtype, std::span<const std::byte* const> addends,
            int64_t begin, int64_t elements, std::byte* to) {
  TESSERA_CHECK(can_reduce(reduction, dtype), "the {} of {}", word(reduction), dtype_name(dtype));
  const bool sum = reduction != Reduction::maximum;
  if (dtype == DType::f64 && sum) {
    reduce_elements<double, double>(addends, begin, elements, to, Add{});
  } else if (dtype == DType::f64) {
    reduce_elements<double, double>(addends, begin, elements, to, Larger{});
  } else if (dtype == DType::f32 && sum) {
    reduce_elements<float, float>(addends, begin, elements, to, Add{});
  } else if (dtype == DType::f32) {
    reduce_elements<float, float>(addends, begin, elements, to, Larger{});
  } else if (dtype == DType::bf16) {
    reduce_elements<BFloat16, float>(addends, begin, elements, to, Add{});
  } else {
    // Unsigned sums have the bits of signed sums that wrap; in C++, signed ones must not overflow.
    reduce_elements<uint32_t, uint32_t>(addends, begin, elements, to, Add{});
  }
}

}  // namespace tessera
