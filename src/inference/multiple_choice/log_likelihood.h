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

/// Tokens of which the last ones are scored: those from `first` (at least 1) on.
struct Continuation {
  std::vector<int32_t> tokens;
  size_t first = 1;
  bool truncated = false;  ///< the context's start was cut to fit the model
};

/// `text` after `context` as tokens, for a model that reads at most `limit` of them. The two are
/// tokenized together and divided at the number of tokens that the context alone has, its trailing
/// white space counted to the text. `beginning` is put before them (see beginning_of_document());
/// where that and the context are empty, the end of another document. What the model cannot read
/// (the last token is only predicted) is cut from the context's start, after `beginning`. Throws
/// Error when the text has no token of its own or does not fit by itself.
Continuation tokenize_continuation(const Tokenizer& tokenizer, std::span<const int32_t> beginning,
                                   std::string_view context, std::string_view text, int64_t limit);

/// The log-likelihood (nats) of each continuation's scored tokens. Continuations of about the same
/// length run together, `rows` at once; no result depends on what else is in its batch.
/// `on_progress` gets the number done so far after every batch; where it returns false the work
/// ends with an Error.
std::vector<double> log_likelihoods(const LoadedModel& model,
                                    std::span<const Continuation> continuations, int64_t rows,
                                    Runtime& runtime,
                                    const std::function<bool(int64_t)>& on_progress = nullptr);

}  // namespace tessera
