#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "base/bfloat16.h"
#include "base/worded.h"

namespace tessera {

/// Element types. Files store their names (see dtype_name()), not the numbers of the enum. Nothing
/// is computed in f16, which is only a type of weights in files. Such weights are widened when they
/// are loaded.
enum class DType : uint8_t { f64, f32, bf16, f16, i32, u16, u8 };

/// Returns the bytes of one element.
int64_t dtype_size(DType dtype);
/// Returns the name of a type: "f32", "bf16", ...
std::string_view dtype_name(DType dtype);
/// Returns the type of that name. Throws Error, naming the known types, if there is none.
DType dtype_from_name(std::string_view name);
bool is_floating(DType dtype);
/// Returns the type in which values of `dtype` are summed: f64 for f64, otherwise f32.
DType accumulation_dtype(DType dtype);
/// Returns whether both types are floating and every value of `from` is a value of `to`.
bool holds_exactly(DType to, DType from);

/// The precision that a model computes in, as configurations name it.
enum class Precision : uint8_t { bf16, fp32, fp64 };
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<Precision>{"bf16", "fp32", "fp64"};
/// Returns the element type of the weights and activations in a precision.
DType compute_dtype(Precision precision);

/// An IEEE half-precision float, for weights in files. Arithmetic is done in f32.
struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  /// Rounds to nearest, ties to even. Magnitudes of 65520 or more become infinite; NaN stays NaN.
  explicit Float16(float value);
  explicit operator float() const;
};

/// The DType of a C++ element type: dtype_of<float> == DType::f32.
template <typename T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "no DType stands for this type");
  return DType::u8;
}();
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<Float16> = DType::f16;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<uint16_t> = DType::u16;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::u8;

/// The C++ type that elements of T are computed in: double for double, float for all others.
template <typename T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

}  // namespace tessera
