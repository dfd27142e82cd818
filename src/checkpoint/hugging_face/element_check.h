#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "base/error.h"
#include "tensor/dtype.h"

namespace tessera::hugging_face {

/// Returns the index of the first word whose bits of the mask `exponent_mask` are all set, or -1.
/// Such a float is NaN or infinite.
template <typename Word>
int64_t find_non_finite(std::span<const std::byte> bytes, Word exponent_mask) {
  const size_t count = bytes.size() / sizeof(Word);
  for (size_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, bytes.data() + i * sizeof(Word), sizeof(Word));
    if ((word & exponent_mask) == exponent_mask) return static_cast<int64_t>(i);
  }
  return -1;
}

/// Returns the index of the first NaN or infinity among elements of a floating type, or -1 if all
/// are finite. The elements need not be aligned.
inline int64_t first_non_finite_element(std::span<const std::byte> bytes, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return find_non_finite<uint64_t>(bytes, 0x7ff0000000000000);
    case DType::f32:
      return find_non_finite<uint32_t>(bytes, 0x7f800000);
    case DType::bf16:
      return find_non_finite<uint16_t>(bytes, 0x7f80);
    case DType::f16:
      return find_non_finite<uint16_t>(bytes, 0x7c00);
    default:
      break;
  }
  throw InternalError("not a floating element type: " + std::string(dtype_name(dtype)));
}

}  // namespace tessera::hugging_face
