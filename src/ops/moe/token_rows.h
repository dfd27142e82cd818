#pragma once

#include "ops/support.h"

namespace tessera {

// Kernels between tokens [tokens, width] and their routed rows [rows, width]. Each is parallel over
// the side that it writes. The inner loops run along a row and vectorise. Each kernel is both the
// plain and the fast one. Device kernels are in token_rows_kernels.h.

/// Computes result_t = Σ_j weights_tj · rows[output_indices_tj]. The sum is taken in the
/// accumulation type in the order of j and rounded once. Choices without a row (-1) add nothing.
/// `weights` is [tokens, k] in the accumulation type; null stands for ones. On an accelerator the
/// work is put into the execution's stream.
void sum_rows(const Execution& execution, const Tensor& rows, const Tensor& output_indices,
              const Tensor* weights, const Tensor& result);

/// Returns the number of rows that hold a token. The other rows come last, and their input indices
/// are negative.
int64_t rows_in_use(const Tensor& input_indices);

}  // namespace tessera
