#include "data/ngram.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tessera {
namespace {

uint64_t pair_key(int32_t before, int32_t token) {
  return (uint64_t{static_cast<uint32_t>(before)} << 32) | static_cast<uint32_t>(token);
}

void require_known_tokens(const InstanceSource& source, std::span<const int32_t> row,
                          int64_t vocabulary_size) {
  const auto outside = std::ranges::find_if(
      row, [&](int32_t token) { return token < 0 || token >= vocabulary_size; });
  if (outside == row.end()) return;
  throw Error("{} has the token {}, but its tokenizer has {} tokens; prepare it again",
              source.description(), *outside, vocabulary_size);
}

template <typename Visit>
void for_each_row(const InstanceSource& source, Split split, int64_t vocabulary_size,
                  Visit&& visit) {
  std::vector<int32_t> row(static_cast<size_t>(source.context()));
  for (int64_t instance = 0; instance < source.instances(split); ++instance) {
    source.read(split, 0, instance, row);
    require_known_tokens(source, row, vocabulary_size);
    visit(row);
  }
}

}  // namespace

NgramBaseline::NgramBaseline(int64_t vocabulary_size)
    : vocabulary_size_(vocabulary_size),
      target_counts_(static_cast<size_t>(vocabulary_size)),
      predecessors_(static_cast<size_t>(vocabulary_size)),
      histories_(static_cast<size_t>(vocabulary_size)) {}

void NgramBaseline::count(std::span<const int32_t> row) {
  for (size_t i = 1; i < row.size(); ++i) {
    const size_t before = static_cast<size_t>(row[i - 1]);
    const size_t token = static_cast<size_t>(row[i]);
    TESSERA_CHECK(before < histories_.size() && token < histories_.size(),
                  "tokens {} {} outside a vocabulary of {}", row[i - 1], row[i], vocabulary_size_);
    ++targets_;
    if (++target_counts_[token] == 1) ++seen_;
    ++histories_[before].count;
    const int64_t count = ++pairs_[pair_key(row[i - 1], row[i])];
    if (count == 1) {
      ++once_;
      ++histories_[before].followers;
      ++predecessors_[token];
    } else if (count == 2) {
      --once_;
      ++twice_;
    } else if (count == 3) {
      --twice_;
    }
  }
}

double NgramBaseline::smoothed(int64_t count, int64_t total) const {
  const double vocabulary = static_cast<double>(vocabulary_size_);
  if (seen_ == 0) return 1 / vocabulary;
  const double seen = static_cast<double>(seen_);
  return (static_cast<double>(count) + seen / vocabulary) / (static_cast<double>(total) + seen);
}

double NgramBaseline::unigram(int32_t token) const {
  return smoothed(target_counts_[static_cast<size_t>(token)], targets_);
}

double NgramBaseline::discount() const {
  if (once_ + twice_ == 0) return 0.5;
  const double once = static_cast<double>(once_);
  return std::clamp(once / (once + 2 * static_cast<double>(twice_)), 0.1, 0.9);
}

double NgramBaseline::bigram(int32_t before, int32_t token) const {
  // Every distinct pair counts once, for its second token.
  const double continuation =
      smoothed(predecessors_[static_cast<size_t>(token)], static_cast<int64_t>(pairs_.size()));
  const History& history = histories_[static_cast<size_t>(before)];
  if (history.count == 0) return continuation;
  const auto found = pairs_.find(pair_key(before, token));
  const double count = found == pairs_.end() ? 0 : static_cast<double>(found->second);
  const double discounted = std::max(count - discount(), 0.0);
  const double mass_left = discount() * static_cast<double>(history.followers);
  return (discounted + mass_left * continuation) / static_cast<double>(history.count);
}

BaselineLoss ngram_baseline(const InstanceSource& source, int64_t vocabulary_size) {
  NgramBaseline model(vocabulary_size);
  for_each_row(source, Split::train, vocabulary_size,
               [&](std::span<const int32_t> row) { model.count(row); });
  BaselineLoss loss;
  for_each_row(source, Split::held_out, vocabulary_size, [&](std::span<const int32_t> row) {
    for (size_t i = 1; i < row.size(); ++i) {
      loss.unigram -= std::log(model.unigram(row[i]));
      loss.bigram -= std::log(model.bigram(row[i - 1], row[i]));
      ++loss.targets;
    }
  });
  loss.unigram /= static_cast<double>(loss.targets);
  loss.bigram /= static_cast<double>(loss.targets);
  return loss;
}

}  // namespace tessera
