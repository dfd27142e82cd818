#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

// Elementary functions for loops that the compiler vectorises: they have no branches, calls or
// tables. The polynomials are our own weighted minimax fits.

/// e^x = power · 2^n, for finite x of moderate size.
struct ExpParts {
  float power;    ///< e^r of the remainder |r| <= ln(2) / 2
  float shifted;  ///< 1.5 · 2^23 + n: the low bits hold the integer n
};

/// 1.5 · 2^23. Adding it to a small float rounds the float to an integer, in the sum's low bits.
inline constexpr float kExpShift = 12582912.0f;

inline ExpParts exp_parts(float x) {
  // x = n ln 2 + r with an integer n and |r| <= ln(2) / 2.
  const float shifted = x * 1.44269504f + kExpShift;
  const float n = shifted - kExpShift;
  // ln 2 in two parts. The first is short enough for its product with n to be exact.
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float polynomial = 0.00138143157f;
  polynomial = polynomial * r + 0.00836885154f;
  polynomial = polynomial * r + 0.0416684012f;
  polynomial = polynomial * r + 0.166665195f;
  polynomial = polynomial * r + 0.499999934f;
  return {(polynomial * r) * r + r + 1.0f, shifted};
}

/// Returns e^x within 1.5 units in the last place over all floats. The result is +inf where e^x
/// overflows, 0 from -inf up to about -104, and NaN for NaN. Denormal results are rounded, or
/// flushed to zero by the processor's mode.
inline float exp_fast(float x) {
  // Beyond these limits the two factors below give inf and 0. The order of the operands keeps NaN.
  x = 89.0f < x ? 89.0f : x;
  x = -105.0f > x ? -105.0f : x;
  const ExpParts parts = exp_parts(x);
  const int32_t exponent =
      std::bit_cast<int32_t>(parts.shifted) - std::bit_cast<int32_t>(kExpShift);
  // 2^n as two factors, because n alone may leave the range of exponents.
  const int32_t half = exponent >> 1;
  const auto first = static_cast<uint32_t>(half + 127) << 23;
  const auto second = static_cast<uint32_t>(exponent - half + 127) << 23;
  return parts.power * std::bit_cast<float>(first) * std::bit_cast<float>(second);
}

/// Returns e^x for x < 88, such as the exponents of a softmax. It is a third cheaper than
/// exp_fast(). Below -87 it returns e^-87 (1.6e-38) instead of smaller numbers. A NaN stays a NaN
/// if the processor made it or if it came from a bf16.
inline float exp_softmax(float x) {
  x = -87.0f > x ? -87.0f : x;
  const ExpParts parts = exp_parts(x);
  // Adds n to the exponent's bits. The shift drops the other bits of `shifted`.
  return std::bit_cast<float>(std::bit_cast<uint32_t>(parts.power) +
                              (std::bit_cast<uint32_t>(parts.shifted) << 23));
}

/// Returns erf(x) within 3 units in the last place over all floats, and NaN for NaN.
inline float erf_fast(float x) {
  const float magnitude = x < 0.0f ? -x : x;
  // Near zero: x + x p(x²).
  const float square = x * x;
  float near = 8.34521976e-05f;
  near = near * square - 0.000813743614f;
  near = near * square + 0.00520063416f;
  near = near * square - 0.0268592707f;
  near = near * square + 0.112836939f;
  near = near * square - 0.376126337f;
  near = near * square + 0.128379167f;
  near = near * x + x;
  // Elsewhere: 1 - e^q(|x|), where q approximates log(1 - erf); erf(4) rounds to 1.
  const float t = 4.0f < magnitude ? 4.0f : magnitude;
  float logarithm = 0.000193809477f;
  logarithm = logarithm * t - 0.00302246314f;
  logarithm = logarithm * t + 0.0221447036f;
  logarithm = logarithm * t - 0.103762189f;
  logarithm = logarithm * t - 0.637373879f;
  logarithm = logarithm * t - 1.12756269f;
  logarithm = logarithm * t - 0.000222794227f;
  const float far = 1.0f - exp_fast(logarithm);
  const float signed_far = x < 0.0f ? -far : far;
  return magnitude < 0.93f ? near : signed_far;
}

}  // namespace tessera
