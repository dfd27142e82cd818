#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

/// A 16-bit brain float: the upper half of an f32. Arithmetic is done in f32. The conversions are
/// constexpr so that kernels of devices can call them too.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  /// Rounds to nearest, ties to even; NaN stays NaN. Branch-free, so loops vectorise.
  explicit constexpr BFloat16(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = word + 0x7fffu + ((word >> 16) & 1u);
    const uint32_t quiet_nan = word | 0x400000u;
    bits = static_cast<uint16_t>((value == value ? rounded : quiet_nan) >> 16);
  }
  explicit constexpr operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

}  // namespace tessera
