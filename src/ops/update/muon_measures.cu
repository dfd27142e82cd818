#include "device/packs.h"
#include "ops/update/muon_kernels.h"

namespace tessera {
namespace {

constexpr int kMeasureThreads = 256;
constexpr int kMeasuredColumns = 32;  // columns that a block of measure_columns() handles
/// The groups of threads of such a block. A group has a thread for each column.
constexpr int kRowGroups = kMeasureThreads / kMeasuredColumns;

/// Writes the vector along which a distance from I is taken (muon_measures.h).
__global__ void set_probe(float* probe, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) probe[i] = muon_probe_sign(i);
}

/// Writes row_values = matrix · column_values and the rows' sums of squares, with a block per row.
template <typename T>
__global__ void measure_rows(MeasuredMatrix<T> matrix) {
  const auto row = static_cast<int64_t>(blockIdx.x);
  const T* const values = matrix.values + row * matrix.columns;
  float product = 0, squares = 0;
  for (int64_t j = threadIdx.x; j < matrix.columns; j += blockDim.x) {
    const auto value = static_cast<float>(values[j]);
    product += value * matrix.column_values[j];
    squares += value * value;
  }
  product = block_sum(product);
  squares = block_sum(squares);
  if (threadIdx.x != 0) return;
  matrix.row_values[row] = product;
  matrix.squares[row] = squares;
}

/// Writes column_values = row_values · matrix, with one block per kMeasuredColumns columns. Each
/// group of threads adds every kRowGroups-th row.
template <typename T>
__global__ void measure_columns(MeasuredMatrix<T> matrix) {
  __shared__ float parts[kMeasureThreads];
  const auto thread = static_cast<int>(threadIdx.x);
  const int block_column = thread % kMeasuredColumns;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kMeasuredColumns + block_column;
  float total = 0;
  if (column < matrix.columns) {
    for (int64_t row = thread / kMeasuredColumns; row < matrix.rows; row += kRowGroups) {
      total +=
          matrix.row_values[row] * static_cast<float>(matrix.values[row * matrix.columns + column]);
    }
  }
  parts[thread] = total;
  __syncthreads();
  if (thread >= kMeasuredColumns || column >= matrix.columns) return;
  for (int group = 1; group < kRowGroups; ++group) {
    total += parts[group * kMeasuredColumns + block_column];
  }
  matrix.column_values[column] = total;
}

/// Adds a matrix's measures to the sums, in one block (formulas: muon_measures.cpp).
template <typename T>
__global__ void add_measures(MeasuredMatrix<T> matrix) {
  const bool is_wide = matrix.rows <= matrix.columns;
  const int64_t n = is_wide ? matrix.rows : matrix.columns;
  const float* const probed = is_wide ? matrix.row_values : matrix.column_values;
  double squares = 0, deviations = 0;
  for (int64_t i = threadIdx.x; i < matrix.rows; i += blockDim.x) squares += matrix.squares[i];
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const double difference = probed[i] - muon_probe_sign(i);
    deviations += difference * difference;
  }
  squares = block_sum(squares);
  deviations = block_sum(deviations);
  if (threadIdx.x != 0) return;
  const double measures[] = {matrix.factor * matrix.factor * squares,
                             static_cast<double>(matrix.rows * matrix.columns), deviations,
                             static_cast<double>(n)};
  for (int i = 0; i < 4; ++i) {
    matrix.sums[i] = matrix.is_first ? measures[i] : matrix.sums[i] + measures[i];
  }
}

}  // namespace

template <typename Vendor, typename T>
void muon_measures_device(const MeasuredMatrix<T>& matrix, Stream& stream) {
  const bool is_wide = matrix.rows <= matrix.columns;
  const int64_t n = is_wide ? matrix.rows : matrix.columns;
  const Grid row_grid{.blocks = matrix.rows, .threads = kMeasureThreads};
  const Grid column_grid{.blocks = (matrix.columns + kMeasuredColumns - 1) / kMeasuredColumns,
                         .threads = kMeasureThreads};
  float* const probed = is_wide ? matrix.row_values : matrix.column_values;
  launch(set_probe, grid_of_elements<1>(n), stream, probed, n);
  if (is_wide) {
    launch(measure_columns<T>, column_grid, stream, matrix);
    launch(measure_rows<T>, row_grid, stream, matrix);
  } else {
    launch(measure_rows<T>, row_grid, stream, matrix);
    launch(measure_columns<T>, column_grid, stream, matrix);
  }
  launch(add_measures<T>, {.threads = kMeasureThreads}, stream, matrix);
}

template void muon_measures_device<ThisVendor, float>(const MeasuredMatrix<float>&, Stream&);
template void muon_measures_device<ThisVendor, BFloat16>(const MeasuredMatrix<BFloat16>&, Stream&);

}  // namespace tessera
