#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

/// Returns experts for tokens, [tokens, k] and all different for one token, such that the fullest
/// expert gets `skew` times the balanced load. The loads fall off by a power law, expert by expert;
/// with a skew of 1 they are balanced. The tokens of an expert are random, but always the same.
/// Throws Error if no choice has such a skew: an expert gets each token once at most.
std::vector<int32_t> skewed_choices(int64_t tokens, int64_t experts, int64_t k, double skew);

}  // namespace tessera
