#pragma once

#include <array>
#include <string_view>

#include "config/setting.h"

namespace tessera {

/// The sections that lay a run out over ranks.
inline constexpr std::array<std::string_view, 2> kOneRankSections{"parallel", "shard"};

/// Returns true if the setting is of one of those sections and describes one rank: a size of 1, a
/// placement "none" or "all". This build runs one rank only. Throws Error when the setting asks for
/// another layout or its key is unknown. Returns false for settings of other sections.
bool accepted_on_one_rank(const Setting& setting);

}  // namespace tessera
