#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The operands of mean_skip_norm() and of its gradient. Queries are [tokens, groups, heads,
/// head_dim], where the heads of a group share a key head. Keys are [tokens, groups, head_dim].
template <typename T>
struct MeanSkipOperands {
  using Wide = Compute<T>;
  int64_t tokens;
  int64_t groups;
  int64_t heads;  // query heads of a group
  int64_t head_dim;
  double epsilon;
  const T* projected_query;  // before the convolutions
  const T* projected_key;
  const T* convolved_query;  // after them, without the bias
  const T* convolved_key;
  const Wide* query_bias;   // [groups, heads, head_dim]
  const Wide* key_bias;     // [groups, head_dim]
  const Wide* temperature;  // [groups]

  constexpr int64_t query_channels() const { return groups * heads * head_dim; }
  constexpr int64_t key_channels() const { return groups * head_dim; }
};

/// The arguments of mean_skip_norm(). mean_skip_plain() has the formulas.
template <typename T>
struct MeanSkipForward {
  using Wide = Compute<T>;
  MeanSkipOperands<T> operands;
  T* query;       // may be convolved_query's memory
  T* key;         // may be convolved_key's memory
  Wide* scratch;  // [threads, 2, head_dim], for the processor's kernels
};

/// The arguments of the gradient. Let s be the sum that is normalised, g the gradient of the
/// output, r = (‖s‖² + epsilon)^(-1/2), and f = √head_dim, times the temperature for keys. Then
///   s_gradient = f r (g - s r² Σ s g)
///   temperature_gradient = the sum over the tokens of √head_dim r Σ s g
template <typename T>
struct MeanSkipBackward {
  using Wide = Compute<T>;
  MeanSkipOperands<T> operands;
  const T* query_gradient;
  const T* key_gradient;
  T* projected_query_gradient;
  T* projected_key_gradient;
  T* convolved_query_gradient;  // may be query_gradient's memory
  T* convolved_key_gradient;    // may be key_gradient's memory
  Wide* query_bias_gradient;
  Wide* key_bias_gradient;
  Wide* temperature_gradient;
  Wide* scratch;  // [threads, 3, head_dim], for the processor's kernels
  Wide* parts;    // [token_parts(), part_width()]: sums for the biases, then the temperature

  constexpr int64_t part_width() const {
    return operands.query_channels() + operands.key_channels() + operands.groups;
  }
};

// The fast kernels on the processor, for T = float and BFloat16. A gradient is summed in `parts`
// parts (token_parts() of ops/weight_parts.h).
template <typename T>
void mean_skip_fast(const MeanSkipForward<T>& skip, int threads);
template <typename T>
void mean_skip_gradient_fast(const MeanSkipBackward<T>& skip, int64_t parts, int threads);

/// The most channels of a head. A warp holds a head's row in registers.
inline constexpr int64_t kMostSkipHeadDim = 256;
/// The most channels of a group. Their sums and the temperature's, in f32, fit into 48 KiB.
inline constexpr int64_t kMostSkipChannels = 48 * 256 - 1;

// The device's kernels, for the same types. Plans refuse heads and groups above the two limits.
template <typename Vendor, typename T>
void mean_skip_device(const MeanSkipForward<T>& skip, Stream& stream);
template <typename Vendor, typename T>
void mean_skip_gradient_device(const MeanSkipBackward<T>& skip, int64_t parts, Stream& stream);

}  // namespace tessera
