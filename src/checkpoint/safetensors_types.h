#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace tessera {

/// The largest header that a safetensors file may have, in bytes: the format's own limit.
inline constexpr uint64_t kLargestSafetensorsHeader = 100'000'000;

/// Returns the bits per element of a safetensors type name ("F32" has 32); none for an unknown one.
/// Includes types that Tessera does not compute with (I64, BOOL, F8_E4M3, F4, ...), so that files
/// with such tensors can still be checked and listed.
std::optional<int> safetensors_bits(std::string_view name);

/// Returns Tessera's type for a safetensors name, or nothing if it has no such type.
std::optional<DType> dtype_from_safetensors(std::string_view name);

/// Returns the safetensors name of one of Tessera's types: f32 -> "F32".
std::string_view safetensors_name(DType dtype);

}  // namespace tessera
