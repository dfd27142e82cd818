#pragma once

#include <array>
#include <string_view>

#include "base/words.h"

namespace tessera {

/// RMSNorm: x / sqrt(mean(x²) + epsilon). LayerNorm: (x - mean(x)) / sqrt(variance(x) + epsilon).
enum class NormKind { rms, layer };
template <>
inline constexpr std::array<std::string_view, 2> kWordsOf<NormKind>{"rms", "layer"};

}  // namespace tessera
