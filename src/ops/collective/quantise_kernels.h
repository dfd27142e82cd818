#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "ops/collective/quantised_piece.h"

namespace tessera {

class Stream;

// What the fast kernel of the processor and the kernels of devices share. The plain kernel
// (quantise.cpp) has the definitions.

/// L, the largest integer of a type of so many bits.
constexpr int largest_integer(int bits) { return (1 << (bits - 1)) - 1; }

/// Calls body(bits) with the bits of an integer as a compile-time constant.
template <typename Body>
void with_bits(QuantisedType type, Body&& body) {
  switch (type) {
    case QuantisedType::int8:
      return body(std::integral_constant<int, 8>{});
    case QuantisedType::int4:
      return body(std::integral_constant<int, 4>{});
  }
}

inline constexpr uint32_t kBitsOfInfinity = 0x7f800000u;
inline constexpr uint32_t kBitsOfNan = 0x7fc00000u;
inline constexpr float kLeastNormal = 0x1p-126f;

/// Returns the bits of |value|. They are in the order of magnitudes: infinity is above all finite
/// numbers, and NaN above infinity.
constexpr uint32_t magnitude_bits(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7fffffffu;
}

/// Returns an element, or zero for a number below 2^-126.
constexpr float without_denormals(float value) {
  return magnitude_bits(value) < std::bit_cast<uint32_t>(kLeastNormal) ? 0.0f : value;
}

/// A block's s and 1 / s.
struct BlockScale {
  float factor;
  float scale;
  bool finite;  ///< false if the integers are zeros whatever the elements
};

/// Returns the scale of a block from magnitude_bits() of its largest magnitude.
constexpr BlockScale block_scale(uint32_t magnitude, int largest) {
  if (magnitude >= kBitsOfInfinity) return {0.0f, std::bit_cast<float>(kBitsOfNan), false};
  const auto limit = static_cast<float>(largest);
  const auto m = std::bit_cast<float>(magnitude);
  if (m < limit * kLeastNormal) return {0.0f, 1.0f, true};
  const float factor = limit / m;
  return {factor, 1.0f / factor, true};
}

/// The error e of ErrorFeedback and its factors.
struct FeedbackStep {
  float* error = nullptr;  ///< null without feedback
  float beta = 0;
  float rest = 0;  ///< 1 - beta

  /// Returns e after a step in which y was restored as `restored`.
  constexpr float updated(float e, float y, float restored) const {
    return beta * e + rest * (y - restored);
  }
};

// The device kernels, for T of float and BFloat16. They put their work into the stream.

/// Quantises as many elements as the piece has, with or without feedback.
template <typename Vendor, typename T>
void quantise_device(const QuantisedPiece& piece, const T* values, const FeedbackStep& feedback,
                     Stream& stream);
/// Writes the restored elements, or adds them to `values`, which are then floats.
template <typename Vendor, typename T>
void dequantise_device(const QuantisedPiece& piece, T* values, bool adds, Stream& stream);

}  // namespace tessera
