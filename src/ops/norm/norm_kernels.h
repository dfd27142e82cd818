#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/rotary/rotary_kernels.h"
#include "program/target.h"
#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The arguments of norm(). Each of `rows` rows of `width` elements is normalised on its own: a row
/// of x, or a group of a row. Pointers marked "or null" select the variant.
template <typename T>
struct NormForward {
  using Wide = Compute<T>;
  int64_t rows;
  int64_t width;
  double epsilon;
  const T* x;          // [rows, width]
  const T* residual;   // [rows, width] or null
  const Wide* weight;  // [width] or null
  T* sum;              // [rows, width], null without residual; may be x's or residual's memory
  T* output;           // [rows, width]; may be x's memory
  Wide* inverse;       // [rows]: 1 / sqrt(mean square or variance + epsilon)
  Wide* mean;          // [rows], of a layer norm; null selects the rms norm
};

/// The arguments of the norm's gradient, with x̂ = (x - mean) · inverse and g = output_gradient ·
/// weight. For the rms norm, mean(g) is left out.
///   x_gradient = inverse (g - mean(g) - x̂ mean(g x̂)) + sum_gradient
///   weight_gradient = Σ over the rows of output_gradient · x̂
template <typename T>
struct NormBackward {
  using Wide = Compute<T>;
  int64_t rows;
  int64_t width;
  const T* x;                // [rows, width]: the sum, or x without a residual
  const Wide* weight;        // [width] or null
  const Wide* inverse;       // [rows]
  const Wide* mean;          // [rows], null for the rms norm
  const T* output_gradient;  // [rows, width]
  const T* sum_gradient;     // [rows, width] or null
  T* x_gradient;             // [rows, width]; may be output_gradient's memory
  Wide* weight_gradient;     // [width], null without weight
  Wide* partial;             // [norm_parts(target, rows, ...), width], null without weight
};

/// The rotation of a norm's output by a rotary_table(), or the inverse rotation of the output's
/// gradient. A norm's row has whole heads of one token.
template <typename T>
struct NormRotation {
  const Compute<T>* table = nullptr;  // [tokens, channels]: cosines, then sines; null for none
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t channels = 0;

  RotaryArguments<T> arguments(bool inverse, const T* x, T* output) const {
    return {.tokens = tokens,
            .heads = heads,
            .head_dim = head_dim,
            .channels = channels,
            .inverse = inverse,
            .x = x,
            .table = table,
            .output = output};
  }
};

inline constexpr int64_t kNormLeastRows = 64;    // of a block of rows on the processor
inline constexpr int64_t kNormMostBlocks = 256;  // of all rows

/// Returns the number of rows in a block on the processor. The weight's gradient is summed over the
/// rows of each block, then over the blocks in order. So the result does not depend on the number
/// of threads.
inline int64_t norm_block_rows(int64_t rows) {
  return std::max(kNormLeastRows, (rows + kNormMostBlocks - 1) / kNormMostBlocks);
}

/// Returns the number of parts in which a device sums the weight's gradient, or a bound of that
/// number for the processor. More rows never give fewer parts.
///
/// On a device each block has a part, and all blocks run at once: a multiprocessor has about 32 KiB
/// of rows in its registers. There are at most ⌈rows / 8⌉ blocks, so parts are small compared to
/// the rows. The last bits of the gradient depend on the device's number of multiprocessors.
inline int64_t norm_parts(const Target& target, int64_t rows, int64_t row_bytes) {
  if (target.device == Device::cpu) {
    return std::min(kNormMostBlocks, (rows + kNormLeastRows - 1) / kNormLeastRows);
  }
  constexpr int64_t kLeastRows = 8;
  constexpr int64_t kRegisterBytes = 32768;
  constexpr int64_t kMostBlocks = 8;  // of a multiprocessor
  const int64_t blocks =
      std::clamp<int64_t>(kRegisterBytes / std::max<int64_t>(row_bytes, 1), 1, kMostBlocks);
  return std::min(blocks * multiprocessors_of(target), (rows + kLeastRows - 1) / kLeastRows);
}

// The fast kernels, for T = float and BFloat16.
template <typename T>
void norm_fast(const NormForward<T>& norm, int threads);
template <typename T>
void norm_gradient_fast(const NormBackward<T>& norm, int threads);

// These functions enqueue the kernels on a device's stream, for the same types. All pointers are to
// device memory. The weight's gradient is summed in `parts` parts (norm_parts()).
template <typename Vendor, typename T>
void norm_device(const NormForward<T>& norm, const NormRotation<T>& rotation, Stream& stream);
template <typename Vendor, typename T>
void norm_gradient_device(const NormBackward<T>& norm, const NormRotation<T>& rotation,
                          int64_t parts, Stream& stream);

}  // namespace tessera
