#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/worded.h"

namespace tessera {

/// The precision in which addends of f32 travel to the ranks that sum them.
enum class WireFormat : uint8_t {
  fp32,  ///< not rounded
  /// The addends are rounded, and the sum is taken in f32 (MegaScale-MoE, section 5). Here the sum
  /// is rounded too, because it is sent on; in the paper it is not.
  bf16,
};
template <>
inline constexpr std::array<std::string_view, 2> kWordsOf<WireFormat>{"fp32", "bf16"};

}  // namespace tessera
