#pragma once

#include <array>
#include <string_view>

#include "base/words.h"

namespace tessera {

/// The tokens over which the load is counted: those of each layer on its own, or those of all
/// layers pooled (the form of Hugging Face's classes).
enum class BalanceForm { per_layer, pooled };
template <>
inline constexpr std::array<std::string_view, 2> kWords<BalanceForm>{"layer", "pooled"};

}  // namespace tessera
