#pragma once

#include <array>
#include <string_view>

#include "base/worded.h"

namespace tessera {

/// The activation of a gated layer. silu(x) = x / (1 + e^-x); gelu(x) = x Φ(x), where Φ is the
/// cumulative distribution function of the standard normal distribution, computed with erf. The
/// words name the gated layers: SwiGLU, GeGLU.
enum class Activation { silu, gelu };
template <>
inline constexpr std::array<std::string_view, 2> kWordsOf<Activation>{"swiglu", "geglu"};

}  // namespace tessera
