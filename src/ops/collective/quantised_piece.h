#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/round_up.h"
#include "base/worded.h"

namespace tessera {

// A piece is what one message carries of a tensor: integers for its elements, and a scale for each
// block of elements (quantise.h). It has, one after the other:
//   1. the integers: in int8 a byte each; in int4 a byte for two, the first in the upper half;
//   2. zeros up to a multiple of 4 bytes;
//   3. the scales in f32;
//   4. zeros up to a multiple of 16 bytes.
// So one message has all that is needed to restore the elements, kernels move 16 bytes at a time,
// and pieces that lie one after the other in a buffer are all aligned.

/// The integers that elements are rounded to.
enum class QuantisedType : uint8_t { int8, int4 };
template <>
inline constexpr std::array<std::string_view, 2> kWordsOf<QuantisedType>{"int8", "int4"};

struct QuantisedFormat {
  static constexpr int64_t kMostBlock = 4096;

  QuantisedType type = QuantisedType::int8;
  /// The number of elements of a block, from 1 to kMostBlock. In int4 it is even, so that each
  /// block begins with a byte. Kernels of devices are fast for multiples of 8. The last block of a
  /// piece may be shorter.
  int64_t block = 256;
};

constexpr int bits_of(QuantisedType type) { return type == QuantisedType::int8 ? 8 : 4; }

/// A piece in memory.
struct QuantisedPiece {
  QuantisedFormat format;
  int64_t elements = 0;
  std::byte* integers = nullptr;  ///< aligned to 16 bytes
  float* scales = nullptr;

  constexpr int64_t blocks() const { return ceil_div(elements, format.block); }
  constexpr int64_t integer_bytes() const { return ceil_div(elements * bits_of(format.type), 8); }
  /// Returns the offset of the scales, in bytes.
  constexpr int64_t scales_offset() const { return round_up(integer_bytes(), sizeof(float)); }
  constexpr int64_t bytes() const {
    return round_up(scales_offset() + blocks() * static_cast<int64_t>(sizeof(float)), 16);
  }
  /// Returns the number of elements of a block.
  constexpr int64_t elements_of_block(int64_t block) const {
    return std::min(format.block, elements - block * format.block);
  }
  /// Returns the first byte of a block.
  constexpr std::byte* block_integers(int64_t block) const {
    return integers + block * format.block * bits_of(format.type) / 8;
  }
  /// Writes the zeros behind the integers and behind the scales.
  constexpr void clear_padding() const {
    for (int64_t i = integer_bytes(); i < scales_offset(); ++i) integers[i] = std::byte{0};
    const int64_t end = (bytes() - scales_offset()) / static_cast<int64_t>(sizeof(float));
    for (int64_t i = blocks(); i < end; ++i) scales[i] = 0.0f;
  }
};

}  // namespace tessera
