#pragma once

#include <chrono>

namespace tessera {

/// The longest time that a rank waits for another, unless run.rank_timeout or --rank-timeout sets
/// another time. A rank that takes longer counts as stuck. The time is long because the first rank
/// may write a checkpoint or evaluate while the others wait.
inline constexpr std::chrono::minutes kRankTimeout{30};

}  // namespace tessera
