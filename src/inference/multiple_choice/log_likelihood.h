#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inference/loaded_model.h"
#include "program/runtime.h"

namespace tessera {

/// A prompt and its continuation as tokens. The tokens from `first` (at least 1) on are scored.
struct Continuation {
  std::vector<int32_t> tokens;
  size_t first = 1;
  bool truncated = false;  ///< true if the start of the prompt was cut to fit the model
};

/// Returns `prompt` and `text`, tokenized together, for a model that reads at most `limit` tokens.
/// The first scored token has an index that equals the number of tokens of the prompt alone,
/// without its trailing white space. `beginning` comes first (see beginning_of_document()); if it
/// and the prompt are empty, an end-of-document token comes first.
///
/// The model reads all tokens but the last. If they are more than `limit`, the start of the prompt
/// is cut off, after `beginning`. Throws Error when the text has no token of its own or does not
/// fit by itself.
Continuation tokenize_continuation(const Tokenizer& tokenizer, std::span<const int32_t> beginning,
                                   std::string_view prompt, std::string_view text, int64_t limit);

/// Returns the log-likelihood (nats) of each continuation's scored tokens. Continuations of about
/// the same length run together, `rows` at once. A result does not depend on the rest of its batch.
/// Calls `on_progress` after every batch with the number done so far. If it returns false, throws
/// Error.
std::vector<double> log_likelihoods(const LoadedModel& model,
                                    std::span<const Continuation> continuations, int64_t rows,
                                    Runtime& runtime,
                                    const std::function<bool(int64_t)>& on_progress = nullptr);

}  // namespace tessera
