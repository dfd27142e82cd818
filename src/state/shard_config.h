#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/worded.h"
#include "comm/wire_format.h"

namespace tessera {

/// The ranks that share out a part of the state.
enum class ShardOver : uint8_t {
  none,  ///< no ranks: every data rank has all of it
  all,   ///< all ranks of the data axis, or of expert_data for experts: each has a piece
};
template <>
inline constexpr std::array<std::string_view, 2> kWordsOf<ShardOver>{"none", "all"};

/// The [shard] section of a run's configuration.
struct ShardConfig {
  ShardOver optimizer = ShardOver::none;         ///< masters and moments (ZeRO-1)
  WireFormat gradients_wire = WireFormat::fp32;  ///< the format in which gradients are sent
};

}  // namespace tessera
