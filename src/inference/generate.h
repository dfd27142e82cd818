#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "inference/loaded_model.h"
#include "inference/sampling.h"
#include "program/runtime.h"

namespace tessera {

/// The options for continuing a text.
struct GenerateOptions {
  int64_t tokens = 128;  ///< the most new tokens
  /// The control token that the prompt begins with (see beginning_of_document()). "": the
  /// end-of-document token, because documents in prepared data begin after one.
  std::string beginning_of_document;
  bool stop_at_end = true;  ///< stop at the end-of-document token or one of the model's end_tokens
  SamplingOptions sampling;
};

/// The result of generate().
struct Generation {
  std::string text;  ///< the new text, without the prompt
  std::vector<int32_t> tokens;
  double seconds = 0;  ///< spent on the prompt and the new tokens
};

/// Continues a prompt with a key-value cache and returns the new text. An empty prompt starts a new
/// document. Calls `on_text` with each piece of text as soon as it is complete UTF-8, and at the
/// end with the rest. Throws Error when prompt and new tokens exceed the context that the model was
/// trained with, when the prompt has a token outside the model's vocabulary, and as sample() does.
Generation generate(const LoadedModel& model, std::string_view prompt,
                    const GenerateOptions& options, Runtime& runtime,
                    const std::function<void(std::string_view)>& on_text = nullptr);

}  // namespace tessera
