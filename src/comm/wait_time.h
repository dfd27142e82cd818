#pragma once

#include <chrono>

namespace tessera {

/// How long a rank waits for another in training, evaluation and verification. The first rank may
/// write a checkpoint meanwhile, or evaluate; a rank that takes longer is taken for stuck.
inline constexpr std::chrono::minutes kRankTimeout{30};

}  // namespace tessera
