#pragma once

#include <string_view>

#include "config/setting.h"

namespace tessera {

/// Returns true if the setting is of a key that is planned but not in this build, and its value
/// asks for nothing: a size of 1, a placement "none". Throws Error if it asks for more. Returns
/// false for all other settings.
bool asks_nothing_absent(const Setting& setting);

}  // namespace tessera
