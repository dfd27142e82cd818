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

/// A prompt and its continuation as tokens. The continuation, which is scored, begins at `first`.
struct Continuation {
  std::vector<int32_t> tokens;
  size_t first = 1;        ///< an index in `tokens`, at least 1
  bool truncated = false;  ///< true if the start of the prompt was cut to fit the model
};

/// Returns `prompt` and `text`, tokenized together, for a model that reads at most `limit` tokens.
/// If the prompt alone, without its trailing white space, has n tokens, the first n tokens count as
/// the prompt and the others are scored. `beginning` precedes the prompt (beginning_of_document()),
/// or an end-of-document token if `beginning` and the prompt are empty.
///
/// The model reads all tokens but the last one. If these are more than `limit`, the start of the
/// prompt is cut off, after `beginning`. Throws Error when the text has no token of its own or does
/// not fit by itself.
Continuation tokenize_continuation(const Tokenizer& tokenizer, std::span<const int32_t> beginning,
                                   std::string_view prompt, std::string_view text, int64_t limit);

/// Returns the log-likelihood (nats) of each continuation's scored tokens. Continuations of about
/// the same length run together, `rows` at once. A result does not depend on the rest of its batch.
/// Calls `on_progress` after every batch with the number of continuations done so far. Throws Error
/// if `on_progress` returns false, and if a batch does not fit the memory.
std::vector<double> log_likelihoods(const LoadedModel& model,
                                    std::span<const Continuation> continuations, int64_t rows,
                                    Runtime& runtime,
                                    const std::function<bool(int64_t)>& on_progress = nullptr);

}  // namespace tessera
