#pragma once

#include <array>
#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The arguments of one rotation. output may be x's memory.
template <typename T>
struct RotaryArguments {
  int64_t tokens;
  int64_t heads;
  int64_t head_dim;
  int64_t channels;         // rotated channels of each head
  bool inverse;             // true for the inverse rotation
  const T* x;               // [tokens, heads, head_dim]
  const Compute<T>* table;  // [tokens, channels]: cosines, then sines
  T* output;                // [tokens, heads, head_dim]
};

/// Rotates with the fast kernel, for T = float and BFloat16.
template <typename T>
void rotary_fast(const RotaryArguments<T>& rotary, int threads);

/// Enqueues a rotation on a device's stream, for the same types. Arrays are aligned to 64 bytes.
template <typename Vendor, typename T>
void rotary_device(const RotaryArguments<T>& rotary, Stream& stream);

/// A table of rotations in f32: the cosines of each token's angles, then the sines.
struct RotaryTable32 {
  int64_t tokens;
  int64_t channels;
  const int32_t* positions;  // [tokens]
  float* table;              // [tokens, channels]
};

/// The frequencies of the channel pairs first, first + 1, ... in 2^-64 turns per position, without
/// whole turns. The integer product of a position and a frequency is the angle, because only whole
/// turns overflow. So a device needs no f64, in which the processor computes the angle.
struct RotarySteps {
  static constexpr int kMaxCount = 256;  // of one launch, which passes them by value
  int first = 0;
  int count = 0;
  std::array<uint64_t, kMaxCount> frequencies{};
};

/// Enqueues the computation of the table's columns for these pairs of channels.
template <typename Vendor>
void rotary_table_device(const RotaryTable32& table, const RotarySteps& steps, Stream& stream);

}  // namespace tessera
