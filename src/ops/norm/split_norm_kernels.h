#pragma once

#include <cmath>
#include <cstdint>

#include "base/interleaved_sum.h"
#include "ops/support.h"

namespace tessera {

// The kernels of a norm of rows whose columns are split over ranks (split_norm.h). They serve as
// plain and as fast kernels. A rank computes its columns of each row. `mean_r` and `inverse_r` of
// the formulas are SplitRows::mean() and inverse().

/// Rows of which a rank has some columns, and the statistics of the whole rows.
template <typename T>
struct SplitRows {
  int threads;
  int64_t rows;
  int64_t width;   // columns of this rank
  double columns;  // of whole rows
  double epsilon;
  const T* x;                 // [rows, width]
  const Compute<T>* sums;     // [rows]; null: the mean is 0
  const Compute<T>* squares;  // [rows]
  const Compute<T>* weight;   // [width]; null: 1

  using Wide = Compute<T>;
  Wide mean(int64_t row) const {
    return sums == nullptr ? Wide{0} : sums[row] / static_cast<Wide>(columns);
  }
  /// Returns one over the deviation of a row.
  Wide inverse(int64_t row) const {
    return 1 / std::sqrt(squares[row] / static_cast<Wide>(columns) + static_cast<Wide>(epsilon));
  }
  Wide weight_of(int64_t column) const { return weight == nullptr ? Wide{1} : weight[column]; }
  /// Calls body(row, x of the row) for each row, on several threads.
  template <typename Body>
  void for_each_row(Body&& body) const {
    parallel_each(threads, rows, row_grain(width),
                  [&](int64_t row) { body(row, x + row * width); });
  }
};

/// Writes result[r] = Σ_i x[r, i]
template <typename T>
void sum_rows(const SplitRows<T>& rows, Compute<T>* result) {
  rows.for_each_row([&](int64_t row, const T* x) {
    result[row] = interleaved_sum<Compute<T>>(
        rows.width, [=](int64_t i) { return static_cast<Compute<T>>(x[i]); });
  });
}

/// Writes result[r] = Σ_i (x[r, i] - mean_r)^2
template <typename T>
void square_rows(const SplitRows<T>& rows, Compute<T>* result) {
  rows.for_each_row([&](int64_t row, const T* x) {
    const Compute<T> mean = rows.mean(row);
    result[row] = interleaved_sum<Compute<T>>(rows.width, [=](int64_t i) {
      const Compute<T> centred = static_cast<Compute<T>>(x[i]) - mean;
      return centred * centred;
    });
  });
}

/// Computes the gradient of row_squares(): result[r, i] = 2 * (x[r, i] - mean_r) * gradient[r].
template <typename T>
void square_rows_gradient(const SplitRows<T>& rows, const Compute<T>* gradient, T* result) {
  rows.for_each_row([&](int64_t row, const T* x) {
    const Compute<T> mean = rows.mean(row), factor = 2 * gradient[row];
    T* const result_row = result + row * rows.width;
    for (int64_t i = 0; i < rows.width; ++i) {
      result_row[i] = static_cast<T>((static_cast<Compute<T>>(x[i]) - mean) * factor);
    }
  });
}

/// Writes result[r, i] = (x[r, i] - mean_r) * inverse_r * weight[i]
template <typename T>
void scale_all_rows(const SplitRows<T>& rows, T* result) {
  rows.for_each_row([&](int64_t row, const T* x) {
    const Compute<T> mean = rows.mean(row), inverse = rows.inverse(row);
    T* const result_row = result + row * rows.width;
    for (int64_t i = 0; i < rows.width; ++i) {
      result_row[i] =
          static_cast<T>((static_cast<Compute<T>>(x[i]) - mean) * inverse * rows.weight_of(i));
    }
  });
}

/// The gradients of scale_rows(). Those of sums and weight are null if there are none.
template <typename T>
struct ScaledRowsGradients {
  const T* output_gradient;      // [rows, width]
  T* x_gradient;                 // [rows, width]; may be output_gradient
  Compute<T>* squares_gradient;  // [rows]
  Compute<T>* sums_gradient;     // [rows]
  Compute<T>* weight_gradient;   // [width]
};

/// Computes weight_gradient[i] = Σ_r output_gradient[r, i] * (x[r, i] - mean_r) * inverse_r, in the
/// order of the rows.
template <typename T>
void scaled_rows_weight_gradient(const SplitRows<T>& rows,
                                 const ScaledRowsGradients<T>& gradients) {
  parallel_ranges(rows.threads, rows.width, 64, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) gradients.weight_gradient[i] = 0;
    for (int64_t row = 0; row < rows.rows; ++row) {
      const Compute<T> mean = rows.mean(row), inverse = rows.inverse(row);
      const T* const x = rows.x + row * rows.width;
      const T* const gradient = gradients.output_gradient + row * rows.width;
      for (int64_t i = begin; i < end; ++i) {
        const Compute<T> normalised = (static_cast<Compute<T>>(x[i]) - mean) * inverse;
        gradients.weight_gradient[i] += static_cast<Compute<T>>(gradient[i]) * normalised;
      }
    }
  });
}

/// Computes the gradients, with g = output_gradient * weight:
///   x_gradient[r, i] = g[r, i] * inverse_r
///   squares_gradient[r] = -Σ_i g[r, i] * (x[r, i] - mean_r) * inverse_r^3 / (2 * columns)
///   sums_gradient[r] = -Σ_i g[r, i] * inverse_r / columns
template <typename T>
void scaled_rows_gradient(const SplitRows<T>& rows, const ScaledRowsGradients<T>& gradients) {
  using Wide = Compute<T>;
  if (gradients.weight_gradient != nullptr) scaled_rows_weight_gradient(rows, gradients);
  rows.for_each_row([&](int64_t row, const T* x) {
    const Wide mean = rows.mean(row), inverse = rows.inverse(row);
    const auto columns = static_cast<Wide>(rows.columns);
    const T* const gradient = gradients.output_gradient + row * rows.width;
    const auto weighted = [&](int64_t i) {
      return static_cast<Wide>(gradient[i]) * rows.weight_of(i);
    };
    const Wide product = interleaved_sum<Wide>(
        rows.width, [&](int64_t i) { return weighted(i) * (static_cast<Wide>(x[i]) - mean); });
    gradients.squares_gradient[row] = product * inverse * inverse * inverse / (-2 * columns);
    if (gradients.sums_gradient != nullptr) {
      gradients.sums_gradient[row] =
          interleaved_sum<Wide>(rows.width, weighted) * inverse / -columns;
    }
    T* const result_row = gradients.x_gradient + row * rows.width;
    for (int64_t i = 0; i < rows.width; ++i) result_row[i] = static_cast<T>(weighted(i) * inverse);
  });
}

}  // namespace tessera
