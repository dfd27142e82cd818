#include "train/generate.h"

#include <algorithm>

#include "base/error.h"
#include "base/progress.h"
#include "model/model.h"
#include "tensor/dispatch.h"
#include "train/decoder.h"

namespace tessera {
namespace {

/// The logits after the last token, of the tokens that the tokenizer knows.
std::vector<float> last_row(const Tensor& logits, int64_t vocabulary) {
  std::vector<float> row(static_cast<size_t>(vocabulary));
  dispatch_wide(logits.dtype(), [&](auto type) {
    const auto* last = logits.data<decltype(type)>() + (logits.shape()[0] - 1) * logits.shape()[1];
    for (int64_t v = 0; v < vocabulary; ++v)
      row[static_cast<size_t>(v)] = static_cast<float>(last[v]);
  });
  return row;
}

/// The end of the last whole character of UTF-8 text: the start of a cut one, or the whole size.
size_t complete_characters(std::string_view text) {
  size_t start = text.size();
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0U) == 0x80U) continue;
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    if (length > back) start = text.size() - back;
    break;
  }
  return start;
}

}  // namespace

Generation generate(const LoadedModel& model, std::string_view prompt,
                    const GenerateOptions& options, Context& context,
                    const std::function<void(std::string_view)>& on_text) {
  const Tokenizer& tokenizer = *model.tokenizer;
  std::vector<int32_t> tokens = beginning_of_document(tokenizer, options.beginning_of_document);
  if (tokens.empty()) tokens.push_back(tokenizer.end_of_document());
  const std::vector<int32_t> encoded = tokenizer.encode(prompt);
  tokens.insert(tokens.end(), encoded.begin(), encoded.end());
  const int64_t total = static_cast<int64_t>(tokens.size()) + options.tokens;
  const int64_t limit = model.config.data.context;
  if (options.tokens < 1) throw Error("{} tokens were asked for; give at least 1", options.tokens);
  if (total > limit) {
    throw Error(
        "the prompt has {} tokens; with {} new ones that is {}, more than the model's "
        "context of {}; shorten the prompt or lower --tokens",
        tokens.size(), options.tokens, total, limit);
  }
  const Stopwatch watch;
  Decoder decoder(model.config.model, compute_dtype(model.config.train.precision), model.weights,
                  total, context);
  const size_t prompt_size = tokens.size();
  const size_t prompt_text = tokenizer.decode(tokens).size();
  size_t shown = prompt_text;
  std::vector<float> logits = last_row(decoder.feed(tokens), tokenizer.vocabulary_size());
  std::string text;
  while (static_cast<int64_t>(tokens.size()) < total) {
    const int32_t next = sample(logits, options.sampling, tokens.size());
    if (options.stop_at_end && next == tokenizer.end_of_document()) break;
    tokens.push_back(next);
    text = tokenizer.decode(tokens);
    const size_t whole = std::max(shown, complete_characters(text));
    if (on_text && whole > shown) on_text(std::string_view(text).substr(shown, whole - shown));
    shown = whole;
    if (static_cast<int64_t>(tokens.size()) == total) break;
    logits = last_row(decoder.feed(std::span(&tokens.back(), 1)), tokenizer.vocabulary_size());
  }
  if (on_text && text.size() > shown) on_text(std::string_view(text).substr(shown));
  return {.text = text.size() > prompt_text ? text.substr(prompt_text) : "",
          .tokens = {tokens.begin() + static_cast<int64_t>(prompt_size), tokens.end()},
          .seconds = watch.seconds()};
}

}  // namespace tessera
