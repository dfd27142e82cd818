#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/parallel.h"
#include "comm/communicator.h"
#include "ops/loss/cross_entropy_rows.h"
#include "ops/loss/vocabulary_part.h"

namespace tessera {

/// A chunk of tokens on the processor, with the logits of the rank's classes. Wide is the type of
/// the logits and the results. T is the type of the logits' gradient, which overwrites the logits.
template <typename T, typename Wide>
struct LossChunk {
  int threads;
  int64_t rows;
  int64_t classes;  // of this rank
  const VocabularyPart* part;
  const int32_t* targets;   // [rows]; in the whole vocabulary, -1 for "no target"
  const Wide* seed;         // [1], the gradient of the loss; null: no gradient is written
  Wide z;                   // the coefficient of the z-loss
  Wide* logits;             // [rows, classes]
  int64_t gradient_stride;  // elements of T from row to row
  Wide* token_loss;         // [rows]: -log p(target), 0 where there is no target
  Wide* log_sum_exp;        // [rows]

  const Wide* logits_of(int64_t row) const { return logits + row * classes; }
  int32_t own_target(int64_t row) const { return part->own(targets[row], classes); }
  /// Returns the logit of a row's target, or 0 if the rank does not have it.
  Wide target_logit(int64_t row) const {
    const int32_t own = own_target(row);
    return own >= 0 ? logits_of(row)[own] : Wide{0};
  }
  template <typename Body>
  void for_each_row(Body&& body) const {
    parallel_ranges(threads, rows, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) body(row);
    });
  }
};

/// Writes a row's results, given its log-sum-exp and its target's logit.
template <typename Rows, typename T, typename Wide>
void finish_row(const LossChunk<T, Wide>& chunk, int64_t row, Wide log_sum_exp, Wide target_logit) {
  const bool counts = chunk.targets[row] >= 0;
  chunk.log_sum_exp[row] = log_sum_exp;
  chunk.token_loss[row] = counts ? log_sum_exp - target_logit : Wide{0};
  if (chunk.seed == nullptr) return;
  Rows::gradient(chunk.logits_of(row), chunk.classes, log_sum_exp, chunk.own_target(row),
                 counts ? *chunk.seed : Wide{0}, chunk.z,
                 reinterpret_cast<T*>(chunk.logits) + row * chunk.gradient_stride);
}

/// Computes the losses of a chunk, and the gradient of its logits, on a rank that has all classes.
template <typename Rows, typename T, typename Wide>
void losses_of_chunk(const LossChunk<T, Wide>& chunk) {
  chunk.for_each_row([&](int64_t row) {
    const Wide log_sum_exp = Rows::log_sum_exp(chunk.logits_of(row), chunk.classes);
    finish_row<Rows>(chunk, row, log_sum_exp, chunk.target_logit(row));
  });
}

/// Computes the losses and the gradient if ranks share the classes. The ranks all-reduce each row's
/// largest logit, then its sum of exponentials and its target's logit, so all get the same bits.
/// `numbers` is scratch memory for two numbers a row.
template <typename Rows, typename T, typename Wide>
void losses_of_chunk_over_ranks(const LossChunk<T, Wide>& chunk, Communicator& ranks,
                                std::string_view name, Wide* numbers) {
  const Tensor largest = Tensor::wrap(chunk.log_sum_exp, {chunk.rows}, dtype_of<Wide>);
  chunk.for_each_row([&](int64_t row) {
    chunk.log_sum_exp[row] = Rows::largest(chunk.logits_of(row), chunk.classes);
  });
  ranks.all_reduce(name, largest, largest, Reduction::maximum);
  Wide* const exponentials = numbers;
  Wide* const target_logits = numbers + chunk.rows;
  chunk.for_each_row([&](int64_t row) {
    exponentials[row] =
        Rows::sum_of_exponentials(chunk.logits_of(row), chunk.classes, chunk.log_sum_exp[row]);
    target_logits[row] = chunk.target_logit(row);
  });
  const Tensor sums = Tensor::wrap(numbers, {2, chunk.rows}, dtype_of<Wide>);
  ranks.all_reduce(name, sums, sums);
  chunk.for_each_row([&](int64_t row) {
    finish_row<Rows>(chunk, row, chunk.log_sum_exp[row] + std::log(exponentials[row]),
                     target_logits[row]);
  });
}

}  // namespace tessera
