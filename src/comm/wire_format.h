#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/worded.h"

namespace tessera {

/// The precision in which numbers of f32 travel to the ranks that sum or use them.
enum class WireFormat : uint8_t {
  fp32,  ///< not rounded
  bf16,  ///< rounded; sums of such addends are taken in f32 (MegaScale-MoE, section 5)
  int8,  ///< integers with a scale for each block (ops/collective/quantise.h; ZeRO++)
  int4,  ///< likewise
};
template <>
inline constexpr std::array<std::string_view, 4> kWordsOf<WireFormat>{"fp32", "bf16", "int8",
                                                                      "int4"};

/// How numbers travel to a sum or a gather.
struct Wire {
  WireFormat format = WireFormat::fp32;
  int64_t block = 256;  ///< the elements of a block of integers
  /// True if sums go level by level (the ranks of a node, then the nodes), and false if all ranks
  /// of a sum exchange their addends at once: one hop, and so one rounding.
  bool by_level = true;
  bool operator==(const Wire&) const = default;
  bool is_quantised() const { return format == WireFormat::int8 || format == WireFormat::int4; }
};

}  // namespace tessera
