#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The operands of a mean skip with norm and of its gradient. Queries are [tokens, groups, heads,
/// head_dim], where the heads of a group share a key head; keys are [tokens, groups, head_dim].
template <typename T>
struct MeanSkipOperands {
  using Wide = Compute<T>;
  int64_t tokens;
  int64_t groups;
  int64_t heads;  // of a group
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

template <typename T>
struct MeanSkipForward {
  using Wide = Compute<T>;
  MeanSkipOperands<T> operands;
  T* query;       // may be convolved_query's memory
  T* key;         // may be convolved_key's memory
  Wide* scratch;  // [threads, 2, head_dim], of the processor's kernels
};

/// With s the sum that is normalised, r = (‖s‖² + epsilon)^(-1/2), f = √head_dim (times the
/// temperature) and g the output's gradient: the gradient of s is f r (g - s r² Σ s g), and that
/// of the temperature is the sum of √head_dim r Σ s g.
template <typename T>
struct MeanSkipBackward {
  using Wide = Compute<T>;
  MeanSkipOperands<T> operands;
  const T* of_query;
  const T* of_key;
  T* of_projected_query;
  T* of_projected_key;
  T* of_convolved_query;  // may be of_query's memory
  T* of_convolved_key;    // may be of_key's memory
  Wide* of_query_bias;
  Wide* of_key_bias;
  Wide* of_temperature;
  Wide* scratch;  // [threads, 3, head_dim], of the processor's kernels
  Wide* parts;    // [token_parts(), part_width()]: of the biases, then of the temperature

  constexpr int64_t part_width() const {
    return operands.query_channels() + operands.key_channels() + operands.groups;
  }
};

/// The fast kernels, for T = float and BFloat16.
template <typename T>
void mean_skip_fast(const MeanSkipForward<T>& skip, int threads);
template <typename T>
void mean_skip_gradient_fast(const MeanSkipBackward<T>& skip, int64_t parts, int threads);

inline constexpr int64_t kMostSkipHeadDim = 256;
/// Of a group's queries and its key: their sums in f32 and the temperature's fit into the 48 KiB of
/// shared memory that a block has.
inline constexpr int64_t kMostSkipChannels = 48 * 256 - 1;

/// The kernels of devices, for the same types. They put their work into the stream. Plans refuse
/// larger heads and groups than these.
template <typename Vendor, typename T>
void mean_skip_device(const MeanSkipForward<T>& skip, Stream& stream);
template <typename Vendor, typename T>
void mean_skip_gradient_device(const MeanSkipBackward<T>& skip, int64_t parts, Stream& stream);

}  // namespace tessera
