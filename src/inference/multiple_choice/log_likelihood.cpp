#include "inference/multiple_choice/log_likelihood.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "data/loader.h"
#include "inference/evaluate.h"
#include "plan/programs.h"

namespace tessera {
namespace {

/// Lengths are rounded up to multiples of this, so that a few programs serve all lengths.
constexpr size_t kLengthStep = 32;  // tokens

/// Returns the number of tokens that the model reads: all but the last, rounded up.
int64_t padded_length(const Continuation& continuation, int64_t limit) {
  const size_t steps = (continuation.tokens.size() - 1 + kLengthStep - 1) / kLengthStep;
  return std::min(static_cast<int64_t>(steps * kLengthStep), limit);
}

/// Returns continuations as a batch of `rows` rows. Positions after a row's tokens have no target,
/// and neither have rows without a continuation. Attention is causal, so padding changes no result.
Batch make_batch(std::span<const Continuation> all, std::span<const size_t> chosen, int64_t rows,
                 int64_t length) {
  Batch batch;
  batch.rows = rows;
  batch.context = length;
  const auto size = static_cast<size_t>(rows * length);
  batch.tokens.assign(size, 0);
  batch.targets.assign(size, -1);
  batch.document_starts.assign(size, 0);
  batch.positions.resize(size);
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    const size_t begin = row * static_cast<size_t>(length);
    std::iota(batch.positions.begin() + static_cast<int64_t>(begin),
              batch.positions.begin() + static_cast<int64_t>(begin) + length, 0);
    if (row >= chosen.size()) continue;
    const Continuation& continuation = all[chosen[row]];
    for (size_t t = 0; t < continuation.tokens.size(); ++t) {
      if (t + 1 < continuation.tokens.size()) batch.tokens[begin + t] = continuation.tokens[t];
      if (t >= continuation.first) batch.targets[begin + t - 1] = continuation.tokens[t];
    }
    batch.target_count += static_cast<int64_t>(continuation.tokens.size() - continuation.first);
  }
  return batch;
}

}  // namespace

Continuation tokenize_continuation(const Tokenizer& tokenizer, std::span<const int32_t> beginning,
                                   std::string_view prompt, std::string_view text, int64_t limit) {
  // Tokenizers join the prompt's trailing white space with the next word.
  const size_t last = prompt.find_last_not_of(" \t\n\v\f\r");
  const std::string_view stem = prompt.substr(0, last == std::string_view::npos ? 0 : last + 1);
  Continuation result;
  result.tokens = tokenizer.encode(std::string(prompt) + std::string(text));
  result.first = tokenizer.encode(stem).size();
  if (result.first >= result.tokens.size()) {
    throw Error("the choice has no token of its own after its prompt");
  }
  result.tokens.insert(result.tokens.begin(), beginning.begin(), beginning.end());
  result.first += beginning.size();
  if (result.first == 0) {
    result.tokens.insert(result.tokens.begin(), tokenizer.end_of_document());
    result.first = 1;
  }
  const size_t scored = result.tokens.size() - result.first;
  const size_t readable = static_cast<size_t>(limit) + 1;  // the last token is not read
  if (result.tokens.size() > readable) {
    const size_t excess = result.tokens.size() - readable;
    // Without a beginning, the first token that the model reads is the last one of the prompt.
    if (scored + std::max(beginning.size(), size_t{1}) > readable) {
      throw Error("the choice has {} tokens, more than the model's context of {}", scored, limit);
    }
    const auto from = result.tokens.begin() + static_cast<int64_t>(beginning.size());
    result.tokens.erase(from, from + static_cast<int64_t>(excess));
    result.first -= excess;
    result.truncated = true;
  }
  return result;
}

std::vector<double> log_likelihoods(const LoadedModel& model,
                                    std::span<const Continuation> continuations, int64_t rows,
                                    Runtime& runtime,
                                    const std::function<bool(int64_t)>& on_progress) {
  const int64_t limit = model.config.data.context;
  std::vector<size_t> order(continuations.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // The longest come first, so that a lack of memory shows at the start.
  std::ranges::stable_sort(order, std::greater(),
                           [&](size_t i) { return padded_length(continuations[i], limit); });
  std::vector<double> result(continuations.size());
  for (size_t begin = 0; begin < order.size();) {
    const int64_t length = padded_length(continuations[order[begin]], limit);
    const auto remaining = std::span(order).subspan(begin);
    const auto end_of_length = std::ranges::find_if(
        remaining, [&](size_t i) { return padded_length(continuations[i], limit) != length; });
    const auto same_length =
        remaining.first(static_cast<size_t>(std::distance(remaining.begin(), end_of_length)));
    const size_t at_once = std::min(static_cast<size_t>(rows), same_length.size());
    const auto batch_rows = static_cast<int64_t>(at_once);
    const ProgramSize size{.sequences = batch_rows, .context = length};
    EvaluationPasses passes = evaluation_passes(write_evaluation(
        inference_config(model.config.model), compute_dtype(model.config.train.precision), size));
    require_evaluation_memory(evaluation_bytes(passes, model.weights, runtime.target()),
                              model.weights, size, runtime);
    StandaloneEvaluator evaluator(std::move(passes), model.weights, runtime);
    for (size_t done = 0; done < same_length.size(); done += at_once) {
      const auto chosen = same_length.subspan(done, std::min(at_once, same_length.size() - done));
      const std::vector<double> losses =
          evaluator->row_losses(make_batch(continuations, chosen, batch_rows, length));
      for (size_t row = 0; row < chosen.size(); ++row) result[chosen[row]] = -losses[row];
      const size_t all_done = begin + done + chosen.size();
      if (on_progress && !on_progress(static_cast<int64_t>(all_done))) {
        throw Error("interrupted after {} of {} choices", all_done, order.size());
      }
    }
    begin += same_length.size();
  }
  return result;
}

}  // namespace tessera
