#include "train/generate.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/progress.h"
#include "engine/executor.h"
#include "model/model.h"
#include "tensor/dispatch.h"

namespace tessera {
namespace {

/// One sequence being continued: key-value caches, and a decoding program for each number of tokens
/// that is fed at once (the prompt's, then one).
class Decoder {
 public:
  Decoder(const LoadedModel& model, int64_t capacity, Context& context)
      : model_(model), capacity_(capacity), context_(context) {}

  /// Feeds tokens at the sequence's end and gives the logits after the last of them.
  std::vector<float> feed(std::span<const int32_t> tokens) {
    Step& step = prepare(static_cast<int64_t>(tokens.size()));
    std::ranges::copy(tokens, step.tokens.data<int32_t>());
    std::iota(step.positions.data<int32_t>(), step.positions.data<int32_t>() + tokens.size(),
              static_cast<int32_t>(done_));
    *step.first.data<int32_t>() = static_cast<int32_t>(done_);
    step.executor.run(step.frame);
    done_ += static_cast<int64_t>(tokens.size());
    return last_row(step.frame[step.decoding.logits]);
  }

 private:
  struct Step {
    Step(const LoadedModel& model, int64_t count, int64_t capacity, Context& context)
        : decoding(write_decoding(model.config.model, compute_dtype(model.config.train.precision),
                                  count, capacity)),
          executor(decoding.program, context),
          frame(decoding.program),
          tokens(context.pool(), {count}, DType::i32),
          positions(context.pool(), {count}, DType::i32),
          first(context.pool(), {1}, DType::i32) {
      for (size_t i = 0; i < model.weights.size(); ++i) {
        frame.bind(decoding.parameters.values()[i], model.weights[i]);
      }
      frame.bind(decoding.tokens, tokens);
      frame.bind(decoding.positions, positions);
      frame.bind(decoding.first, first);
    }
    DecodingProgram decoding;
    Executor executor;
    Frame frame;
    Tensor tokens, positions, first;
  };

  Step& prepare(int64_t count) {
    std::unique_ptr<Step>& step = steps_[count];
    if (step) return *step;
    step = std::make_unique<Step>(model_, count, capacity_, context_);
    const auto& values = step->decoding.program.values();
    for (size_t id = 0; id < values.size(); ++id) {
      if (values[id].kind != ValueKind::state) continue;
      Tensor& cache = caches_[values[id].name];
      if (!cache.defined()) {
        cache = Tensor(context_.pool(), values[id].spec.shape, values[id].spec.dtype);
        cache.fill_zero();
      }
      step->frame.bind(Value{static_cast<int>(id)}, cache);
    }
    return *step;
  }

  static std::vector<float> last_row(const Tensor& logits) {
    const int64_t vocabulary = logits.shape()[1];
    std::vector<float> row(static_cast<size_t>(vocabulary));
    dispatch_wide(logits.dtype(), [&](auto type) {
      const auto* last = logits.data<decltype(type)>() + (logits.shape()[0] - 1) * vocabulary;
      for (int64_t v = 0; v < vocabulary; ++v)
        row[static_cast<size_t>(v)] = static_cast<float>(last[v]);
    });
    return row;
  }

  const LoadedModel& model_;
  int64_t capacity_;
  Context& context_;
  std::map<std::string, Tensor> caches_;
  std::map<int64_t, std::unique_ptr<Step>> steps_;
  int64_t done_ = 0;
};

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
  std::vector<int32_t> tokens{
      tokenizer.end_of_document()};  // a document begins after another's end
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
  Decoder decoder(model, total, context);
  const size_t prompt_size = tokens.size();
  const size_t prompt_text = tokenizer.decode(tokens).size();
  size_t shown = prompt_text;
  std::vector<float> logits = decoder.feed(tokens);
  logits.resize(static_cast<size_t>(tokenizer.vocabulary_size()));
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
    logits = decoder.feed(std::span(&tokens.back(), 1));
    logits.resize(static_cast<size_t>(tokenizer.vocabulary_size()));
  }
  if (on_text && text.size() > shown) on_text(std::string_view(text).substr(shown));
  return {.text = text.size() > prompt_text ? text.substr(prompt_text) : "",
          .tokens = {tokens.begin() + static_cast<int64_t>(prompt_size), tokens.end()},
          .seconds = watch.seconds()};
}

}  // namespace tessera
