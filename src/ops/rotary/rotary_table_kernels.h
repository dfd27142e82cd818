#pragma once

#include <array>
#include <cstdint>

namespace tessera {

class Stream;

/// A table of rotations in f32: the cosines of each token's angles, then the sines.
struct RotaryTable32 {
  int64_t tokens;
  int64_t channels;
  const int32_t* positions;  // [tokens]
  float* table;              // [tokens, channels]
};

/// Frequencies of the pairs first, first + 1, ... in 2^-64 turns per position, without whole turns.
/// The product with a position is an exact angle, because only whole turns overflow. So a device
/// does not need f64, in which the processor computes the angle.
struct RotarySteps {
  static constexpr int kMost = 256;
  int first = 0;
  int count = 0;
  std::array<uint64_t, kMost> frequencies{};
};

/// Computes the columns of these pairs on a device. Puts its work into the stream.
template <typename Vendor>
void rotary_table_device(const RotaryTable32& table, const RotarySteps& steps, Stream& stream);

}  // namespace tessera
