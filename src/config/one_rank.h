#pragma once

#include <array>
#include <string_view>

#include "config/setting.h"

namespace tessera {

/// The sections that lay a run out over ranks.
inline constexpr std::array<std::string_view, 2> kOneRankSections{"parallel", "shard"};

/// This build runs one rank. True when the setting is of those sections and says no more than that:
/// a size of 1, a placement "none" or "all". Throws Error when it asks for another layout or its
/// key is unknown; false for settings of other sections.
bool accepted_on_one_rank(const Setting& setting);

}  // namespace tessera
