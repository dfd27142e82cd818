#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/context.h"
#include "train/loaded_model.h"

namespace tessera {

/// How the next token is drawn from the model's distribution.
struct SamplingOptions {
  double temperature = 0.8;  ///< divides the logits; 0 takes the most probable token
  int64_t top_k = 0;         ///< only the k most probable tokens; 0: all
  double top_p = 1;          ///< only the most probable tokens that together reach this probability
  uint64_t seed = 1;
};

/// Draws a token from logits [vocabulary]; `index` numbers the draws of one text. Throws Error on
/// options out of range.
int32_t sample(std::span<const float> logits, const SamplingOptions& options, uint64_t index);

struct GenerateOptions {
  int64_t tokens = 128;     ///< at most this many new ones
  bool stop_at_end = true;  ///< end at the end-of-document token
  SamplingOptions sampling;
};

struct Generation {
  std::string text;  ///< the new text, without the prompt
  std::vector<int32_t> tokens;
  double seconds = 0;  ///< spent on the new tokens
};

/// Continues a prompt, with a key-value cache. An empty prompt starts a new document. `on_text`
/// gets each piece of text as soon as it is complete UTF-8. Throws Error when prompt and new tokens
/// exceed the context that the model was trained with.
Generation generate(const LoadedModel& model, std::string_view prompt,
                    const GenerateOptions& options, Context& context,
                    const std::function<void(std::string_view)>& on_text = nullptr);

}  // namespace tessera
