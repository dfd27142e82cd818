#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The choices of tokens. Those with an index of `experts` or more choose the skip class.
/// Functions are constexpr for the kernels of devices.
template <typename Wide>
struct SkippedChoices {
  int64_t tokens;
  int64_t k;
  int64_t experts;
  const Wide* weights;     // [tokens, k]
  const int32_t* indices;  // [tokens, k]

  constexpr bool skips(int64_t token, int64_t j) const { return indices[token * k + j] >= experts; }
  /// Returns the sum of the weights of a token's choices that skip.
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

/// x_gradient = weight · result_gradient.
/// weights_gradient = Σ x · result_gradient for a choice that skips, else 0.
template <typename T>
struct AddSkippedGradient {
  SkippedChoices<Compute<T>> choices;
  int64_t hidden;
  const T* x;
  const T* result_gradient;
  T* x_gradient;
  Compute<T>* weights_gradient;  // [tokens, k]
};

// Device kernels, for T = float and BFloat16. They put their work into the stream.
template <typename Vendor, typename T>
void add_skipped_device(const AddSkipped<T>& skipped, Stream& stream);
template <typename Vendor, typename T>
void add_skipped_gradient_device(const AddSkippedGradient<T>& skipped, Stream& stream);

}  // namespace tessera
