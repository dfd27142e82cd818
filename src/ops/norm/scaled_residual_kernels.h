#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The vectors of (x + bias) ⊙ scale, [width] each.
template <typename Wide>
struct ScaleAndBias {
  const Wide* scale;
  const Wide* bias;
};

/// Residual scaling and the norm after it, of `rows` rows of `width` elements. Without x, the sum
/// is given and only normalised.
template <typename T>
struct ScaledForward {
  using Wide = Compute<T>;
  int64_t rows;
  int64_t width;
  double epsilon;
  const T* x;          // [rows, width], or null
  const Wide* stream;  // [rows, width], or null
  ScaleAndBias<Wide> x_scaling, stream_scaling;
  const Wide* weight;  // [width]
  Wide* sum;           // [rows, width]: the new stream
  T* output;           // [rows, width]
  Wide* inverse;       // [rows]: 1 / sqrt(mean square + epsilon)
};

/// The number of column sums from which the gradients of vectors are computed: of d, d · x,
/// d · stream and output_gradient · n (see below), in this order within a part.
inline constexpr int64_t kScaledSums = 4;

/// The gradients, with n = sum · inverse, g = output_gradient · weight and
/// d = inverse (g - n mean(g n)) + sum_gradient. For x and the stream they are d · scale. Summed
/// over rows, they are Σ d (x + bias) for x's scale, scale · Σ d for its bias, the same for the
/// stream's, and Σ output_gradient · n for the weight.
template <typename T>
struct ScaledBackward {
  using Wide = Compute<T>;
  int64_t rows;
  int64_t width;
  const T* x;          // [rows, width]
  const Wide* stream;  // [rows, width], or null
  ScaleAndBias<Wide> x_scaling, stream_scaling;
  const Wide* weight;        // [width]
  const Wide* sum;           // [rows, width]
  const Wide* inverse;       // [rows]
  const T* output_gradient;  // [rows, width]
  const Wide* sum_gradient;  // [rows, width], or null
  T* x_gradient;             // [rows, width]
  Wide* stream_gradient;     // [rows, width], or null
  Wide*
      vector_gradients[5];  // [width] each: x's scale and bias, the stream's or null, the weight's
  Wide* parts;              // [parts, kScaledSums, width]
  int64_t part_count;
};

/// Writes the gradients of the vectors in column c, from the column's sums.
template <typename T, typename Sums>
constexpr void put_vector_gradients(const ScaledBackward<T>& scaled, int64_t c, const Sums& sums) {
  scaled.vector_gradients[0][c] = sums[1] + scaled.x_scaling.bias[c] * sums[0];
  scaled.vector_gradients[1][c] = scaled.x_scaling.scale[c] * sums[0];
  if (scaled.stream != nullptr) {
    scaled.vector_gradients[2][c] = sums[2] + scaled.stream_scaling.bias[c] * sums[0];
    scaled.vector_gradients[3][c] = scaled.stream_scaling.scale[c] * sums[0];
  }
  scaled.vector_gradients[4][c] = sums[3];
}

// The fast kernels, for T = float and BFloat16.
template <typename T>
void scaled_residual_fast(const ScaledForward<T>& scaled, int threads);
template <typename T>
void scaled_residual_gradient_fast(const ScaledBackward<T>& scaled, int threads);

// Device kernels, for the same types. They put their work into the stream.
template <typename Vendor, typename T>
void scaled_residual_device(const ScaledForward<T>& scaled, Stream& stream);
template <typename Vendor, typename T>
void scaled_residual_gradient_device(const ScaledBackward<T>& scaled, Stream& stream);

}  // namespace tessera
