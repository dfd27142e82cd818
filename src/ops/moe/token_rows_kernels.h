#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// result_r = x_{token_of_row[r]} for each row r that holds a token (token_of_row[r] >= 0).
template <typename T>
struct RowGather {
  int64_t rows;
  int64_t width;
  const T* x;                   // [tokens, width]
  const int32_t* token_of_row;  // [rows]
  T* result;                    // [rows, width]
};

/// result_t = Σ_j weights_tj · rows[row_of_choice_tj], summed in the order of j and rounded once.
/// Choices without a row (a negative index) add nothing.
template <typename In, typename Out>
struct RowSum {
  int64_t tokens;
  int64_t k;
  int64_t width;
  const In* rows;                // [rows, width]
  const int32_t* row_of_choice;  // [tokens, k]
  const Compute<In>* weights;    // [tokens, k]; null stands for ones
  Out* result;                   // [tokens, width]
};

/// The gradient of a weighted RowSum. For each choice j of a token t that has a row r
///   rows_gradient_r = weights_tj · result_gradient_t
///   weights_gradient_tj = rows_r · result_gradient_t
/// weights_gradient is zero for the other choices.
template <typename T>
struct RowSumGradient {
  using Wide = Compute<T>;
  int64_t tokens;
  int64_t k;
  int64_t width;
  const T* rows;                 // [rows, width]
  const Wide* weights;           // [tokens, k]
  const int32_t* row_of_choice;  // [tokens, k]
  const T* result_gradient;      // [tokens, width]
  T* rows_gradient;              // [rows, width]; may be the memory of `rows`
  Wide* weights_gradient;        // [tokens, k]
};

// Device kernels, for float and BFloat16. They put their work into the stream. All pointers are to
// device memory, and all arrays of rows begin on 64 bytes.
template <typename Vendor, typename T>
void gather_rows_device(const RowGather<T>& gather, Stream& stream);
template <typename Vendor, typename In, typename Out>
void sum_rows_device(const RowSum<In, Out>& sum, Stream& stream);
template <typename Vendor, typename T>
void sum_rows_gradient_device(const RowSumGradient<T>& gradient, Stream& stream);

}  // namespace tessera
