#pragma once

#include <chrono>

namespace tessera {

/// The longest time that a rank waits for another in training, evaluation and verification. The
/// first rank may write a checkpoint or evaluate meanwhile. A rank that takes longer counts as
/// stuck.
inline constexpr std::chrono::minutes kRankTimeout{30};

}  // namespace tessera
