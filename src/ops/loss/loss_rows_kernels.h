#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The computations on a chunk of logits, one row per token: see PlainRows for the formulas. The
/// gradient of the logits overwrites them.
template <typename T>
struct LossRows {
  int64_t rows;
  int64_t vocabulary;
  const float* logits;      // [rows, vocabulary]; begins on 64 bytes
  const int32_t* targets;   // [rows]; -1 for "no target"
  const float* seed;        // [1], the gradient of the loss; null: no gradient is written
  float z;                  // the coefficient of the z-loss
  float* token_loss;        // [rows]: -log p(target), 0 where there is no target
  float* log_sum_exp;       // [rows]
  T* gradient;              // [rows, vocabulary], at the address of the logits
  int64_t gradient_stride;  // elements from row to row: as many bytes as a row of logits
};

/// The steps if ranks share the vocabulary. After the first step the ranks take the maximum of
/// SplitLossRows::largest, and after the second the sum of `sums`. The third writes the results.
enum class SplitLossStep { largest, sums, results };

/// The computations of these steps. `loss` has the logits of this rank's classes.
template <typename T>
struct SplitLossRows {
  LossRows<T> loss;
  int64_t first;   // this rank's first class
  float* largest;  // [rows]: the largest logit
  float* sums;     // [2, rows]: Σ exp(logit - largest), and the target's logit or 0
};

/// loss = Σ over tokens with a target of token_loss + z · log_sum_exp², summed in f64.
struct LossSum {
  int64_t tokens;
  double z;
  const int32_t* targets;    // [tokens]
  const float* token_loss;   // [tokens]
  const float* log_sum_exp;  // [tokens]
  float* loss;               // [1]
};

// These functions enqueue the kernels on a device's stream, for T = float and BFloat16. All
// pointers are to device memory.
template <typename Vendor, typename T>
void loss_rows_device(const LossRows<T>& loss, Stream& stream);
template <typename Vendor, typename T>
void split_rows_device(SplitLossStep step, const SplitLossRows<T>& split, Stream& stream);
template <typename Vendor>
void loss_sum_device(const LossSum& sum, Stream& stream);

}  // namespace tessera
