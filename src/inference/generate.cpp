#include "inference/generate.h"

#include <algorithm>

#include "base/error.h"
#include "base/progress.h"
#include "base/utf8.h"
#include "data/tokenizer.h"
#include "inference/decoder.h"
#include "model/model.h"
#include "tensor/dispatch.h"

namespace tessera {
namespace {

/// Returns the logits after the last token, for the tokens that both model and tokenizer have.
std::vector<float> last_row(const Tensor& logits, const Tokenizer& tokenizer) {
  const int64_t columns = logits.shape()[1];
  std::vector<float> row(static_cast<size_t>(std::min(columns, tokenizer.vocabulary_size())));
  dispatch_wide(logits.dtype(), [&](auto type) {
    const auto* last = logits.data<decltype(type)>() + (logits.shape()[0] - 1) * columns;
    for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(last[i]);
  });
  return row;
}

bool ends_text(const LoadedModel& model, int32_t token) {
  return token == model.tokenizer->end_of_document() ||
         std::ranges::find(model.end_tokens, token) != model.end_tokens.end();
}

/// Returns the tokens that the model reads first: the beginning of a document, then the prompt.
std::vector<int32_t> prompt_tokens(const LoadedModel& model, std::string_view prompt,
                                   const std::string& beginning) {
  const Tokenizer& tokenizer = *model.tokenizer;
  std::vector<int32_t> tokens = beginning_of_document(tokenizer, beginning);
  if (tokens.empty()) tokens.push_back(tokenizer.end_of_document());
  const std::vector<int32_t> encoded = tokenizer.encode(prompt);
  tokens.insert(tokens.end(), encoded.begin(), encoded.end());
  require_in_vocabulary(tokens, model.config.model.vocabulary_size, &tokenizer);
  return tokens;
}

/// Throws Error unless the context holds the prompt and the new tokens.
void require_room(int64_t prompt_size, int64_t new_tokens, int64_t context) {
  if (new_tokens < 1) throw Error("{} tokens were asked for; give at least 1", new_tokens);
  if (new_tokens <= context - prompt_size) return;
  throw Error(
      "the prompt has {} tokens; with {} new ones that is more than the model's context of {}; "
      "shorten the prompt or lower --tokens",
      prompt_size, new_tokens, context);
}

/// Returns the number of bytes of a UTF-8 text without an incomplete last character.
size_t complete_characters(std::string_view text) {
  size_t complete = text.size();
  // An incomplete character has at most 3 of its 4 bytes.
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (is_inside_character(text[text.size() - back])) continue;
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    if (length > back) complete = text.size() - back;
    break;
  }
  return complete;
}

}  // namespace

Generation generate(const LoadedModel& model, std::string_view prompt,
                    const GenerateOptions& options, Runtime& runtime,
                    const std::function<void(std::string_view)>& on_text) {
  const Tokenizer& tokenizer = *model.tokenizer;
  std::vector<int32_t> tokens = prompt_tokens(model, prompt, options.beginning_of_document);
  require_room(static_cast<int64_t>(tokens.size()), options.tokens, model.config.data.context);
  const int64_t total = static_cast<int64_t>(tokens.size()) + options.tokens;
  const Stopwatch watch;
  Decoder decoder(model.config.model, compute_dtype(model.config.train.precision), model.weights,
                  total, runtime);
  const size_t prompt_size = tokens.size();
  const size_t prompt_bytes = tokenizer.decode(tokens).size();
  size_t shown = prompt_bytes;  // bytes of the prompt and of the text that on_text got
  std::vector<float> logits = last_row(on_host(decoder.feed(tokens)), tokenizer);
  std::string text;
  while (static_cast<int64_t>(tokens.size()) < total) {
    const int32_t next = sample(logits, options.sampling, tokens.size());
    if (options.stop_at_end && ends_text(model, next)) break;
    tokens.push_back(next);
    // All tokens are decoded again, because the text of a token can depend on those before it.
    text = tokenizer.decode(tokens);
    const size_t ready = std::max(shown, complete_characters(text));
    if (on_text && ready > shown) on_text(std::string_view(text).substr(shown, ready - shown));
    shown = ready;
    if (static_cast<int64_t>(tokens.size()) == total) break;
    logits = last_row(on_host(decoder.feed(std::span(&tokens.back(), 1))), tokenizer);
  }
  if (on_text && text.size() > shown) on_text(std::string_view(text).substr(shown));
  return {.text = text.size() > prompt_bytes ? text.substr(prompt_bytes) : "",
          .tokens = {tokens.begin() + static_cast<int64_t>(prompt_size), tokens.end()},
          .seconds = watch.seconds()};
}

}  // namespace tessera
