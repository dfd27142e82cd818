#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// (x + bias) ⊙ scale, both [width].
template <typename Wide>
struct ScaleAndBias {
  const Wide* scale;
  const Wide* bias;
};

/// Residual scaling and the norm after it, of `rows` rows of `width` elements. Without x, the sum
/// is given and normalised alone.
template <typename T>
struct ScaledForward {
  using Wide = Compute<T>;
  int64_t rows;
  int64_t width;
  double epsilon;
  const T* x;          // [rows, width], or null
  const Wide* stream;  // [rows, width], or null
  ScaleAndBias<Wide> of_x, of_stream;
  const Wide* weight;  // [width]
  Wide* sum;           // [rows, width]: the new stream
  T* output;           // [rows, width]
  Wide* inverse;       // [rows]: 1 / sqrt(mean square + epsilon)
};

/// The column sums that the gradients of vectors are made of: of d, d x, d stream and of_output n
/// (see below), in this order within a part.
inline constexpr int64_t kScaledSums = 4;

/// The gradients, with n = sum · inverse, g = of_output · weight, and
/// d = inverse (g - n mean(g n)) + of_sum: d times the scale for x and the stream, the column sums
/// of d and of d times what was scaled for bias and scale, and those of of_output · n for weight.
template <typename T>
struct ScaledBackward {
  using Wide = Compute<T>;
  int64_t rows;
  int64_t width;
  const T* x;          // [rows, width]
  const Wide* stream;  // [rows, width], or null
  ScaleAndBias<Wide> of_x, of_stream;
  const Wide* weight;     // [width]
  const Wide* sum;        // [rows, width]
  const Wide* inverse;    // [rows]
  const T* of_output;     // [rows, width]
  const Wide* of_sum;     // [rows, width], or null
  T* x_gradient;          // [rows, width]
  Wide* stream_gradient;  // [rows, width], or null
  Wide*
      vector_gradients[5];  // [width] each: x's scale and bias, the stream's or null, the weight's
  Wide* parts;              // [parts, kScaledSums, width]
  int64_t part_count;
};

/// The gradients of the vectors from column c's sums.
template <typename T, typename Sums>
constexpr void put_vector_gradients(const ScaledBackward<T>& scaled, int64_t c, const Sums& sums) {
  scaled.vector_gradients[0][c] = sums[1] + scaled.of_x.bias[c] * sums[0];
  scaled.vector_gradients[1][c] = scaled.of_x.scale[c] * sums[0];
  if (scaled.stream != nullptr) {
    scaled.vector_gradients[2][c] = sums[2] + scaled.of_stream.bias[c] * sums[0];
    scaled.vector_gradients[3][c] = scaled.of_stream.scale[c] * sums[0];
  }
  scaled.vector_gradients[4][c] = sums[3];
}

/// The fast kernels, for T = float and BFloat16.
template <typename T>
void scaled_residual_fast(const ScaledForward<T>& scaled, int threads);
template <typename T>
void scaled_residual_gradient_fast(const ScaledBackward<T>& scaled, int threads);

/// The kernels of devices, for the same types. They put their work into the stream.
template <typename Vendor, typename T>
void scaled_residual_device(const ScaledForward<T>& scaled, Stream& stream);
template <typename Vendor, typename T>
void scaled_residual_gradient_device(const ScaledBackward<T>& scaled, Stream& stream);

}  // namespace tessera
