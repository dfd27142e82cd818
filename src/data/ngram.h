#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "data/sources/instance_source.h"

namespace tessera {

/// A unigram and a bigram model of token rows. They show what counting alone achieves, as a
/// baseline for a model's loss. V is the size of the vocabulary, c(w) is the number of times that w
/// was a target, and c(v,w) the number of times that w followed v:
///
///  unigram (Witten-Bell with the uniform distribution)
///    p(w) = (c(w) + T / V) / (n + T),  n = sum of c(w), T = number of w with c(w) > 0
///
///  bigram (interpolated Kneser-Ney with one discount)
///    p(w|v) = (max(c(v,w) - D, 0) + D * T(v) * q(w)) / c(v)    p(w|v) = q(w) where c(v) = 0
///    q(w)   = (T'(w) + T / V) / (sum of T' + T)
///    c(v) = sum of c(v,w) over w; T(v) = distinct words after v; T'(w) = distinct words before w;
///    n1, n2 = number of pairs seen once and twice
///    D = n1 / (n1 + 2 n2), limited to [0.1, 0.9]; 0.5 if n1 and n2 are 0
///
/// Every probability is positive and each distribution sums to 1.
class NgramBaseline {
 public:
  explicit NgramBaseline(int64_t vocabulary_size);

  /// Counts the targets of one row: each token but the first, together with the token before it.
  void count(std::span<const int32_t> row);
  /// Return p(token), p(token | before) and D.
  double unigram(int32_t token) const;
  double bigram(int32_t before, int32_t token) const;
  double discount() const;

 private:
  struct History {
    int64_t count = 0;      // c(v)
    int64_t followers = 0;  // T(v)
  };

  double smoothed(int64_t count, int64_t total) const;

  int64_t vocabulary_size_;
  int64_t targets_ = 0;                 // n
  int64_t seen_ = 0;                    // T
  int64_t once_ = 0;                    // n1
  int64_t twice_ = 0;                   // n2
  std::vector<int64_t> target_counts_;  // c(w)
  std::vector<int64_t> predecessors_;   // T'(w)
  std::vector<History> histories_;
  std::unordered_map<uint64_t, int64_t> pairs_;  // c(v,w) by (v << 32) | w
};

/// The baselines' losses on the held-out split, in nats per target token.
struct BaselineLoss {
  double unigram = 0;
  double bigram = 0;
  int64_t targets = 0;
};

/// Counts the training split of a source and evaluates on its held-out split. It uses exactly the
/// targets that a Loader hands out in one epoch, so a model's held-out loss is comparable. Memory
/// grows with the number of distinct pairs. The losses are NaN if nothing is held out. Throws Error
/// as InstanceSource::read() does, and when a token is outside the vocabulary.
BaselineLoss ngram_baseline(const InstanceSource& source, int64_t vocabulary_size);

}  // namespace tessera
