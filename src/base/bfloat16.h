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
    const uint32_t quiet_nan = std::bit_cast<uint32_t>(value) | 0x400000u;
    bits = static_cast<uint16_t>((value == value ? rounded_bits(value) : quiet_nan) >> 16);
  }
  /// Returns a number rounded as by the constructor, in fewer instructions. It must not be NaN.
  static constexpr BFloat16 of_number(float number) {
    BFloat16 result{};
    result.bits = static_cast<uint16_t>(rounded_bits(number) >> 16);
    return result;
  }
  explicit constexpr operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }

 private:
  /// Returns bits of which the upper half is the rounded number.
  static constexpr uint32_t rounded_bits(float number) {
    const uint32_t word = std::bit_cast<uint32_t>(number);
    return word + 0x7fffu + ((word >> 16) & 1u);
  }
};

}  // namespace tessera
