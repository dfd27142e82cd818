#include "tensor/dtype.h"

#include "base/error.h"

namespace tessera {

int64_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 8;
    case DType::f32:
      return 4;
    case DType::i32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::f16:
      return 2;
    case DType::u16:
      return 2;
    case DType::u8:
      return 1;
  }
  throw InternalError("unknown DType");
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "f64";
    case DType::f32:
      return "f32";
    case DType::i32:
      return "i32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::u16:
      return "u16";
    case DType::u8:
      return "u8";
  }
  throw InternalError("unknown DType");
}

DType dtype_from_name(std::string_view name) {
  for (DType dtype :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32, DType::u16, DType::u8}) {
    if (dtype_name(dtype) == name) return dtype;
  }
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
  throw InternalError("a precision that is none");
}

bool is_floating(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

DType accumulation_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

bool holds_exactly(DType to, DType from) {
  if (!is_floating(to) || !is_floating(from)) return false;
  return to == from || dtype_size(to) > dtype_size(from);
}

Float16::Float16(float value) {
  constexpr int kExponentShift = 127 - 15;  // the difference of the exponent biases of f32 and f16
  constexpr uint32_t kInfinity = 0x7c00;
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (word >> 16) & 0x8000u;
  const uint32_t magnitude = word & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    bits = static_cast<uint16_t>(sign | kInfinity | 0x200u);  // NaN
    return;
  }
  const int exponent = static_cast<int>(magnitude >> 23) - kExponentShift;
  if (exponent >= 0x1f) {
    bits = static_cast<uint16_t>(sign | kInfinity);
    return;
  }
  // 13 bits are cut off. A subnormal result loses one more for each step of its exponent below 1.
  const uint32_t mantissa =
      exponent > 0 ? magnitude & 0x7fffffu : (magnitude & 0x7fffffu) | 0x800000u;
  const int cut = exponent > 0 ? 13 : 14 - exponent;
  if (cut > 24) {
    bits = static_cast<uint16_t>(sign);
    return;
  }
  const uint32_t kept = mantissa >> cut;
  const uint32_t rest = mantissa & ((1u << cut) - 1);
  const uint32_t half = 1u << (cut - 1);
  const uint32_t up = rest > half || (rest == half && (kept & 1u) != 0) ? 1 : 0;
  // A carry out of the mantissa raises the exponent, up to infinity.
  const uint32_t whole = (exponent > 0 ? static_cast<uint32_t>(exponent) << 10 : 0) + kept + up;
  bits = static_cast<uint16_t>(sign | whole);
}

Float16::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;  // subnormal, or zero
  return sign != 0 ? -magnitude : magnitude;
}

}  // namespace tessera
