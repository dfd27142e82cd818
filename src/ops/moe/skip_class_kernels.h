#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// What a token's choices give of the skip class, whose indices are from `experts` on.
template <typename Wide>
struct SkippedChoices {
  int64_t tokens;
  int64_t k;
  int64_t experts;
  const Wide* weights;     // [tokens, k]
  const int32_t* indices;  // [tokens, k]

  constexpr bool skips(int64_t token, int64_t j) const { return indices[token * k + j] >= experts; }
  constexpr Wide weight(int64_t token) const {
    Wide total = 0;
    for (int64_t j = 0; j < k; ++j) total += skips(token, j) ? weights[token * k + j] : Wide{0};
    return total;
  }
};

template <typename T>
struct AddSkipped {
  SkippedChoices<Compute<T>> choices;
  int64_t hidden;
  const T* output;  // [tokens, hidden]
  const T* x;       // [tokens, hidden]
  T* result;        // [tokens, hidden]; may be output's memory
};

/// of_x = weight · of_result, and of_weights the product of x and of_result for a skipping choice.
template <typename T>
struct AddSkippedGradient {
  SkippedChoices<Compute<T>> choices;
  int64_t hidden;
  const T* x;
  const T* of_result;
  T* of_x;
  Compute<T>* of_weights;  // [tokens, k]
};

/// The kernels of devices, for T = float and BFloat16. They put their work into the stream.
template <typename Vendor, typename T>
void add_skipped_device(const AddSkipped<T>& skipped, Stream& stream);
template <typename Vendor, typename T>
void add_skipped_gradient_device(const AddSkippedGradient<T>& skipped, Stream& stream);

}  // namespace tessera
