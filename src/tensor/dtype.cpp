#include "tensor/dtype.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace tessera {

namespace {

struct TypeTraits {
  std::string_view name;
  int64_t bytes;
};

/// The traits of each DType, in the order of the enum.
constexpr std::array<TypeTraits, 7> kTraits{
    {{"f64", 8}, {"f32", 4}, {"bf16", 2}, {"f16", 2}, {"i32", 4}, {"u16", 2}, {"u8", 1}}};

const TypeTraits& traits_of(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  if (index >= kTraits.size()) throw InternalError("unknown DType");
  return kTraits[index];
}

}  // namespace

int64_t dtype_size(DType dtype) { return traits_of(dtype).bytes; }

std::string_view dtype_name(DType dtype) { return traits_of(dtype).name; }

DType dtype_from_name(std::string_view name) {
  const auto found = std::ranges::find(kTraits, name, &TypeTraits::name);
  if (found != kTraits.end()) return static_cast<DType>(found - kTraits.begin());
  throw Error("unknown element type '{}'; known are f64, f32, bf16, f16, i32, u16 and u8", name);
}

DType compute_dtype(Precision precision) {
  switch (precision) {
    case Precision::bf16:
      return DType::bf16;
    case Precision::fp32:
      return DType::f32;
    case Precision::fp64:
      return DType::f64;
  }
  throw InternalError("unknown Precision");
}

bool is_floating(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

DType accumulation_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

bool holds_exactly(DType to, DType from) {
  if (!is_floating(to) || !is_floating(from)) return false;
  // A wider type has more digits and exponents. The types of 2 bytes do not hold each other.
  return to == from || dtype_size(to) > dtype_size(from);
}

Float16::Float16(float value) {
  constexpr int kExponentShift = 127 - 15;  // the difference of the exponent biases of f32 and f16
  constexpr uint32_t kInfinity = 0x7c00, kFloatInfinity = 0x7f800000u;
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (word >> 16) & 0x8000u;
  const uint32_t magnitude = word & 0x7fffffffu;
  if (magnitude > kFloatInfinity) {
    bits = static_cast<uint16_t>(sign | kInfinity | 0x200u);  // NaN
    return;
  }
  const int exponent = static_cast<int>(magnitude >> 23) - kExponentShift;
  if (exponent >= 0x1f) {
    bits = static_cast<uint16_t>(sign | kInfinity);
    return;
  }
  // 13 bits of the mantissa are cut off. A subnormal result loses one more bit for each step of its
  // exponent below 1, and its leading 1 becomes explicit.
  const uint32_t mantissa =
      exponent > 0 ? magnitude & 0x7fffffu : (magnitude & 0x7fffffu) | 0x800000u;
  const int cut_bits = exponent > 0 ? 13 : 14 - exponent;
  if (cut_bits > 24) {
    bits = static_cast<uint16_t>(sign);  // below half of the least subnormal number
    return;
  }
  const uint32_t kept = mantissa >> cut_bits;
  const uint32_t remainder = mantissa & ((1u << cut_bits) - 1);
  const uint32_t half = 1u << (cut_bits - 1);
  const uint32_t up = remainder > half || (remainder == half && (kept & 1u) != 0) ? 1 : 0;
  // A carry out of the mantissa raises the exponent, up to infinity.
  const uint32_t rounded = (exponent > 0 ? static_cast<uint32_t>(exponent) << 10 : 0) + kept + up;
  bits = static_cast<uint16_t>(sign | rounded);
}

Float16::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) {
    constexpr uint32_t kExponentShift = 127 - 15;  // as above
    return std::bit_cast<float>(sign | ((exponent + kExponentShift) << 23) | (mantissa << 13));
  }
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;  // subnormal, or zero
  return sign != 0 ? -magnitude : magnitude;
}

}  // namespace tessera
