#pragma once

#include "ops/support.h"

namespace tessera {

// Kernels between tokens [tokens, width] and their routed rows [rows, width], each parallel over
// the side that it writes. Their inner loops run along a row and vectorise; they are plain and fast
// in one.

/// result_t = Σ_j weights_tj · rows[output_indices_tj], taken in the accumulation type in the order
/// of j and rounded once; choices without a row (-1) count nothing. `weights` [tokens, k] is of the
/// accumulation type; null stands for ones.
void sum_rows(const Runtime& runtime, const Tensor& rows, const Tensor& output_indices,
              const Tensor* weights, const Tensor& result);

/// Sets to zero the rows that hold no token (a negative input index).
void clear_unused_rows(const Runtime& runtime, const Tensor& input_indices, const Tensor& rows);

/// Sets to zero the rows from `first` on.
void clear_rows_from(const Runtime& runtime, const Tensor& rows, int64_t first);

}  // namespace tessera
