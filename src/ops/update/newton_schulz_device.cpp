#include "ops/update/newton_schulz_device.h"

#include <algorithm>
#include <array>

#include "ops/gemm/device_gemm.h"
#include "ops/support.h"
#include "ops/update/device_table.h"
#include "ops/update/matrix_labels.h"
#include "ops/update/muon_kernels.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

/// The products of a step. X is not transposed: for a tall X, Xᵀ X replaces X Xᵀ, and X is
/// multiplied from the right.
struct StepProducts {
  StepProducts(const MatrixExtent& extent, DType dtype, int threads)
      : tall(extent.rows > extent.columns), n(std::min(extent.rows, extent.columns)) {
    const GemmShape product{.input = dtype, .output = dtype, .threads = threads};
    gram = square = next = product;
    gram.m = gram.n = n;
    gram.k = std::max(extent.rows, extent.columns);
    gram.transpose_a = tall;
    gram.transpose_b = !tall;
    square.m = square.n = square.k = n;
    next.m = extent.rows;
    next.n = extent.columns;
    next.k = n;
  }

  bool tall;
  int64_t n;
  GemmShape gram, square, next;
};

/// The parts of the workspace, as offsets in bytes.
struct DeviceLayout {
  DeviceLayout(const Target& target, std::span<const Spec> matrices) {
    int64_t blocks = 0, elements = 0, most_n = 0, products = 0;
    const DType dtype = matrices[0].dtype;
    for (const Spec& matrix : matrices) {
      const MatrixExtent extent = matrix_extent(matrix.shape);
      count += extent.count;
      blocks += extent.count * row_blocks<MatrixNormRow<float>>(extent.elements());
      elements = std::max(elements, extent.elements());
      const StepProducts step(extent, dtype, target.threads);
      most_n = std::max(most_n, step.n);
      for (const GemmShape& shape : {step.gram, step.square, step.next}) {
        products = std::max(products, device_gemm_workspace_bytes(target, shape));
      }
    }
    take(table_bytes<MatrixNormRow<float>>(static_cast<size_t>(count)));  // for put_table()
    partial = take(blocks * dtype_size(DType::f64));
    factors = take(count * dtype_size(DType::f64));
    x = take(elements * dtype_size(dtype));
    gram = take(most_n * most_n * dtype_size(dtype));
    square = take(most_n * most_n * dtype_size(dtype));
    scratch = take(products);
  }
  int64_t take(int64_t more) {
    const int64_t offset = bytes;
    bytes += aligned_bytes(more);
    return offset;
  }

  int64_t count = 0;
  int64_t bytes = 0;
  int64_t partial, factors, x, gram, square, scratch;
};

template <typename Vendor, typename T>
class DeviceSteps {
 public:
  DeviceSteps(const Execution& execution, int64_t steps)
      : execution_(execution),
        steps_(steps),
        layout_(execution.runtime.target(), specs_of(execution.inputs)) {}

  void run() {
    take_norms();
    int64_t number = 0;
    for (size_t i = 0; i < execution_.inputs.size(); ++i) {
      const MatrixExtent extent = matrix_extent(execution_.inputs[i].shape());
      for (int64_t e = 0; e < extent.count; ++e, ++number) {
        const int64_t first = e * extent.elements();
        run_matrix(extent, part<double>(layout_.factors) + number,
                   execution_.inputs[i].template pointer<T>() + first,
                   execution_.outputs[i].template pointer<T>() + first);
      }
    }
  }

 private:
  template <typename U>
  U* part(int64_t offset) const {
    return reinterpret_cast<U*>(execution_.workspace.data() + offset);
  }

  void take_norms() {
    std::vector<MatrixNormRow<T>> rows;
    for (const Tensor& matrices : execution_.inputs) {
      const MatrixExtent extent = matrix_extent(matrices.shape());
      for (int64_t e = 0; e < extent.count; ++e) {
        rows.push_back(
            {.count = extent.elements(), .values = matrices.pointer<T>() + e * extent.elements()});
      }
    }
    inverse_norms_device<Vendor, T>(put_table(execution_, std::move(rows)),
                                    part<double>(layout_.partial), part<double>(layout_.factors),
                                    *execution_.stream);
  }

  void run_matrix(const MatrixExtent& extent, const double* factor, const T* in, T* out) {
    const StepProducts products(extent, dtype_of<T>, execution_.runtime.threads());
    // X alternates between two buffers, and ends in the first one.
    const std::array<T*, 2> buffers{out, part<T>(layout_.x)};
    auto current = static_cast<size_t>(steps_ % 2);
    scale_matrix_device<Vendor, T>(factor, in, buffers[current], extent.elements(),
                                   *execution_.stream);
    for (int64_t step = 0; step < steps_; ++step, current = 1 - current) {
      run_step(products, buffers[current], buffers[1 - current]);
    }
  }

  void run_step(const StepProducts& products, const T* x, T* next) {
    T* const gram = part<T>(layout_.gram);
    T* const square = part<T>(layout_.square);
    std::byte* const scratch = part<std::byte>(layout_.scratch);
    device_gemm(execution_, products.gram, x, x, gram, scratch);
    device_gemm(execution_, products.square, gram, gram, square, scratch);
    newton_schulz_polynomial_device<Vendor, T>(gram, square, products.n, *execution_.stream);
    const T* const left = products.tall ? x : square;
    const T* const right = products.tall ? square : x;
    device_gemm(execution_, products.next, left, right, next, scratch);
  }

  const Execution& execution_;
  int64_t steps_;
  DeviceLayout layout_;
};

}  // namespace

int64_t newton_schulz_device_bytes(const Target& target, std::span<const Spec> matrices) {
  return DeviceLayout(target, matrices).bytes;
}

void newton_schulz_on_device(const Execution& execution, int64_t steps) {
  on_device(execution, [&](auto vendor, auto type) {
    DeviceSteps<decltype(vendor), decltype(type)>(execution, steps).run();
  });
}

}  // namespace tessera
