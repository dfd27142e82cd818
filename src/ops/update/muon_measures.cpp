#include "ops/update/muon_measures.h"

#include <algorithm>
#include <cmath>

#include "base/interleaved_sum.h"
#include "ops/labels.h"
#include "ops/support.h"
#include "ops/update/matrix_labels.h"
#include "ops/update/muon_kernels.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

// Each matrix X is measured on its own, by all threads, and its measures are added to four sums.
// X Xᵀ is never computed: v is multiplied by Xᵀ and then by X (a tall X: by X and then by Xᵀ).

/// A matrix that is multiplied by vectors. One of them is the probe v (muon_measures.h).
template <typename T>
struct ProbedMatrix {
  const T* values;  // [rows, columns]
  int64_t rows, columns;
  int threads;

  double entry(int64_t i, int64_t j) const {
    return static_cast<double>(static_cast<Compute<T>>(values[i * columns + j]));
  }
  /// Writes out [rows] = matrix · in [columns], or the rows' sums of squares if `in` is null.
  void times(const double* in, double* out) const {
    parallel_ranges(threads, rows, row_grain(columns), [=, this](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        out[i] = interleaved_sum<double>(columns, [=, this](int64_t j) {
          return entry(i, j) * (in == nullptr ? entry(i, j) : in[j]);
        });
      }
    });
  }
  /// Writes out [columns] = in [rows] · matrix.
  void times_transposed(const double* in, double* out) const {
    parallel_ranges(threads, columns, row_grain(rows), [=, this](int64_t begin, int64_t end, int) {
      std::fill(out + begin, out + end, 0.0);
      for (int64_t i = 0; i < rows; ++i) {
#pragma GCC ivdep
        for (int64_t j = begin; j < end; ++j) out[j] += in[i] * entry(i, j);
      }
    });
  }
};

/// Adds a matrix's measures to `sums`, where v_i = muon_probe_sign(i), n is the smaller of rows and
/// columns, and `vectors` is scratch memory of rows + columns elements:
///   factor² Σ x², rows · columns, |(X Xᵀ − I) v|² (a tall X: |(Xᵀ X − I) v|²), n
template <typename T>
void add_measures(const ProbedMatrix<T>& matrix, double factor, double* vectors, double* sums) {
  double* const row_values = vectors;
  double* const column_values = vectors + matrix.rows;
  matrix.times(nullptr, row_values);
  double squares = 0;
  for (int64_t i = 0; i < matrix.rows; ++i) squares += row_values[i];
  const bool is_wide = matrix.rows <= matrix.columns;
  const int64_t n = std::min(matrix.rows, matrix.columns);
  // v, and then its product with X Xᵀ (or Xᵀ X)
  double* const probed = is_wide ? row_values : column_values;
  for (int64_t i = 0; i < n; ++i) probed[i] = muon_probe_sign(i);
  if (is_wide) {
    matrix.times_transposed(row_values, column_values);
    matrix.times(column_values, row_values);
  } else {
    matrix.times(column_values, row_values);
    matrix.times_transposed(row_values, column_values);
  }
  double deviations = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double difference = probed[i] - muon_probe_sign(i);
    deviations += difference * difference;
  }
  sums[0] += factor * factor * squares;
  sums[1] += static_cast<double>(matrix.rows * matrix.columns);
  sums[2] += deviations;
  sums[3] += static_cast<double>(n);
}

/// The operation of muon_measures(). inputs: updates; output: f64 [4].
class Measures final : public Operation {
 public:
  Measures(std::vector<double> factors, std::vector<int> dims, NewtonSchulzPieces pieces)
      : factors_(std::move(factors)),
        dims_(std::move(dims)),
        of_blocks_(pieces == NewtonSchulzPieces::blocks) {}
  std::string_view name() const override {
    return of_blocks_ ? "muon_measures_of_blocks" : "muon_measures";
  }

  std::string labels(std::span<const Spec> inputs) const override {
    const bool have_experts = inputs[0].shape.rank() == 3;
    return whole_matrices_labels(inputs, " + ") + " -> v" +
           (have_experts ? tied("e@", inputs.size()) : "");
  }
  HandRule hand_rule() const override {
    return sum_of_matrices_rule(
        name(), of_blocks_ ? matrices_rule(name(), 0, 1) : whole_matrices_rule(name(), dims_));
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == factors_.size() && !inputs.empty(), "{} inputs",
                   inputs.size());
    for (const Spec& update : inputs) {
      TESSERA_EXPECT(*this, has_matrices(update.shape), "an update {}", update.shape.text());
    }
    return {{{MuonMeasures::kSums}, DType::f64, {}}};
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    return {.bytes = operand_bytes(inputs, outputs)};
  }
  /// Returns the bytes of the vectors for the largest matrix: two in f64, on a device three in f32.
  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    int64_t rows = 0, columns = 0;
    for (const Spec& update : inputs) {
      const MatrixExtent extent = matrix_extent(update.shape);
      rows = std::max(rows, extent.rows);
      columns = std::max(columns, extent.columns);
    }
    if (target.device == Device::cpu) return (rows + columns) * dtype_size(DType::f64);
    return 2 * aligned_bytes(rows * dtype_size(DType::f32)) + columns * dtype_size(DType::f32);
  }
  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    auto* const vectors = reinterpret_cast<double*>(execution.workspace.data());
    double* const sums = execution.outputs[0].data<double>();
    std::fill(sums, sums + MuonMeasures::kSums, 0.0);
    for (size_t i = 0; i < factors_.size(); ++i) {
      const Tensor& update = execution.inputs[i];
      const MatrixExtent extent = matrix_extent(update.shape());
      dispatch_floating(update.dtype(), [&]<typename T>(T) {
        for (int64_t index = 0; index < extent.count; ++index) {
          add_measures<T>({update.data<T>() + index * extent.elements(), extent.rows,
                           extent.columns, execution.runtime.threads()},
                          factors_[i], vectors, sums);
        }
      });
    }
  }

 private:
  void run_on_device(const Execution& execution) const {
    int64_t rows = 0;
    for (const Tensor& update : execution.inputs) {
      rows = std::max(rows, matrix_extent(update.shape()).rows);
    }
    const int64_t row_bytes = aligned_bytes(rows * dtype_size(DType::f32));
    const auto scratch_vector = [&](int64_t byte_offset) {
      return reinterpret_cast<float*>(execution.workspace.data() + byte_offset);
    };
    on_device(execution, [&]<typename Vendor, typename T>(Vendor, T) {
      bool is_first = true;
      for (size_t i = 0; i < factors_.size(); ++i) {
        const Tensor& update = execution.inputs[i];
        const MatrixExtent extent = matrix_extent(update.shape());
        for (int64_t index = 0; index < extent.count; ++index, is_first = false) {
          muon_measures_device<Vendor, T>(
              {.values = update.pointer<T>() + index * extent.elements(),
               .rows = extent.rows,
               .columns = extent.columns,
               .factor = factors_[i],
               .row_values = scratch_vector(0),
               .column_values = scratch_vector(2 * row_bytes),
               .squares = scratch_vector(row_bytes),
               .sums = execution.outputs[0].pointer<double>(),
               .is_first = is_first},
              *execution.stream);
        }
      }
    });
  }

  std::vector<double> factors_;
  std::vector<int> dims_;
  bool of_blocks_;
};

}  // namespace

double MuonMeasures::rms() const { return std::sqrt(squares / elements); }

double MuonMeasures::deviation() const { return std::sqrt(deviations / dims); }

Value muon_measures(Builder& builder, std::span<const MeasuredUpdate> updates,
                    NewtonSchulzPieces pieces) {
  std::vector<Value> values;
  std::vector<double> factors;
  std::vector<int> dims;
  for (const MeasuredUpdate& update : updates) {
    values.push_back(update.update);
    factors.push_back(update.factor);
    dims.push_back(builder.spec(update.update).shape.rank());
  }
  return builder.apply_single(
      std::make_shared<Measures>(std::move(factors), std::move(dims), pieces), std::move(values));
}

}  // namespace tessera
