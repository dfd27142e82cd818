#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The choices of tokens. A choice with an index of `experts` or more skips the experts. Functions
/// are constexpr so that kernels of devices can call them.
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

/// result_t = output_t + weight(t) · x_t for each token t.
template <typename T>
struct AddSkipped {
  SkippedChoices<Compute<T>> choices;
  int64_t hidden;
  const T* output;  // [tokens, hidden]
  const T* x;       // [tokens, hidden]
  T* result;        // [tokens, hidden]; may be output's memory
};

/// x_gradient_t = weight(t) · result_gradient_t for each token t.
/// weights_gradient_tj = Σ_i x_ti · result_gradient_ti if choice j skips, else 0.
template <typename T>
struct AddSkippedGradient {
  SkippedChoices<Compute<T>> choices;
  int64_t hidden;
  const T* x;  // [tokens, hidden], as are the next two
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
