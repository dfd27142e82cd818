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

/// The arguments of scaled_residual_norm(), for `rows` rows of `width` elements. Without x, the sum
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
  Wide* sum;           // [rows, width]: the new stream; may be stream's memory
  T* output;           // [rows, width]; may be x's memory
  Wide* inverse;       // [rows]: 1 / sqrt(mean square + epsilon)
};

/// The sums over the rows, for each column, from which the gradients of the scales, the biases and
/// the weight follow. ScaledBackward defines their terms. A part holds the sums in this order.
enum ScaledSum : int {
  sum_of_d,
  sum_of_d_x,
  sum_of_d_stream,
  sum_of_weight_products,  // output_gradient · n
};
inline constexpr int64_t kScaledSums = 4;

/// The arguments of the gradient. With n = sum · inverse and g = output_gradient · weight, the
/// gradient of the sum is d = inverse (g - n mean(g n)) + sum_gradient. For x, and the same for the
/// stream, with Σ over the rows:
///   x_gradient = d · scale, scale_gradient = Σ d (x + bias), bias_gradient = scale · Σ d
///   weight_gradient = Σ output_gradient · n
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
  T* x_gradient;             // [rows, width]; may be output_gradient's memory
  Wide* stream_gradient;     // [rows, width], or null; may be sum_gradient's memory
  // [width] each: of x's scale and bias, of the stream's (or null), of the weight.
  Wide* vector_gradients[5];
  Wide* parts;  // [parts, kScaledSums, width]
  int64_t part_count;
};

/// Writes the gradients of the vectors in column c, from the column's sums.
template <typename T, typename Sums>
constexpr void put_vector_gradients(const ScaledBackward<T>& scaled, int64_t c, const Sums& sums) {
  const auto d = sums[sum_of_d];
  scaled.vector_gradients[0][c] = sums[sum_of_d_x] + scaled.x_scaling.bias[c] * d;
  scaled.vector_gradients[1][c] = scaled.x_scaling.scale[c] * d;
  if (scaled.stream != nullptr) {
    scaled.vector_gradients[2][c] = sums[sum_of_d_stream] + scaled.stream_scaling.bias[c] * d;
    scaled.vector_gradients[3][c] = scaled.stream_scaling.scale[c] * d;
  }
  scaled.vector_gradients[4][c] = sums[sum_of_weight_products];
}

// The fast kernels, for T = float and BFloat16.
template <typename T>
void scaled_residual_fast(const ScaledForward<T>& scaled, int threads);
template <typename T>
void scaled_residual_gradient_fast(const ScaledBackward<T>& scaled, int threads);

// These functions enqueue the kernels on a device's stream, for the same types.
template <typename Vendor, typename T>
void scaled_residual_device(const ScaledForward<T>& scaled, Stream& stream);
template <typename Vendor, typename T>
void scaled_residual_gradient_device(const ScaledBackward<T>& scaled, Stream& stream);

}  // namespace tessera
