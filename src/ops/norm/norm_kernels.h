#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// One forward norm of `rows` rows of `width` elements. Each row is normalised on its own. The
/// groups of a row are rows here. Pointers marked "or null" select the variant.
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

/// The gradient of the norm, with x̂ = (x - mean) · inverse and g = output_gradient · weight:
/// x_gradient = inverse (g - mean(g) - x̂ mean(g x̂)) + sum_gradient, for rms without mean(g),
/// weight_gradient = sum over the rows of output_gradient · x̂.
template <typename T>
struct NormBackward {
  using Wide = Compute<T>;
  int64_t rows;
  int64_t width;
  const T* x;                // [rows, width]: what was normalised
  const Wide* weight;        // [width] or null
  const Wide* inverse;       // [rows]
  const Wide* mean;          // [rows], null for the rms norm
  const T* output_gradient;  // [rows, width]
  const T* sum_gradient;     // [rows, width] or null
  T* x_gradient;             // [rows, width]; may be output_gradient's memory
  Wide* weight_gradient;     // [width], null without weight
  Wide* partial;             // [norm_blocks(rows), width], null without weight
};

/// Returns the number of rows in a block. Rows are summed into the weight's gradient block by
/// block, and the blocks in order, so the result does not depend on the threads.
inline int64_t norm_block_rows(int64_t rows) {
  constexpr int64_t kLeastRows = 64;
  constexpr int64_t kMostBlocks = 256;
  return std::max(kLeastRows, (rows + kMostBlocks - 1) / kMostBlocks);
}

/// Returns the number of blocks, or more. It grows with `rows`.
inline int64_t norm_blocks(int64_t rows) { return std::min<int64_t>(256, (rows + 63) / 64); }

/// The fast kernels, for T = float and BFloat16.
template <typename T>
void norm_fast(const NormForward<T>& norm, int threads);
template <typename T>
void norm_gradient_fast(const NormBackward<T>& norm, int threads);

/// The kernels of devices, for the same types. They put their work into the stream. All pointers
/// are the device's.
template <typename Vendor, typename T>
void norm_device(const NormForward<T>& norm, Stream& stream);
template <typename Vendor, typename T>
void norm_gradient_device(const NormBackward<T>& norm, Stream& stream);

}  // namespace tessera
