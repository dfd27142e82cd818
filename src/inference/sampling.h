#pragma once

#include <cstdint>
#include <span>

namespace tessera {

/// The options for drawing the next token from the model's distribution.
struct SamplingOptions {
  double temperature = 0.8;  ///< divides the logits; 0 takes the most probable token
  int64_t top_k = 0;         ///< only the k most probable tokens; 0: all
  double top_p = 1;  ///< only the fewest most probable tokens whose probabilities reach this sum
  uint64_t seed = 1;
};

/// Draws a token from logits [vocabulary] and returns it. The draw depends on the seed and `index`,
/// the position of the token in its text. Throws Error on options that are out of range and on
/// logits that are not finite.
int32_t sample(std::span<const float> logits, const SamplingOptions& options, uint64_t index);

}  // namespace tessera
