#pragma once

#include <chrono>

namespace tessera {

/// The longest time that a rank waits for another, unless run.rank_timeout or --rank-timeout sets
/// another time. A rank that takes longer counts as stuck. The time is long because the first rank
/// may write a checkpoint or evaluate while the others wait.
inline constexpr std::chrono::minutes kRankTimeout{30};

/// How long after the end of a rank the calls of other ranks fail because of it. All ranks may end
/// for the same reason, shortly after each other. In this time each reports its own error. As long
/// after a rank has withdrawn a message, others fail because of that.
inline constexpr std::chrono::milliseconds kEndGrace{500};

}  // namespace tessera
