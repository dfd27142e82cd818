#include "ops/update/newton_schulz.h"

#include <algorithm>
#include <array>

#include "ops/gemm/device_gemm.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/support.h"
#include "ops/update/device_table.h"
#include "ops/update/matrix_labels.h"
#include "ops/update/muon_kernels.h"
#include "ops/update/orthogonalise.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

// On the processor, matrices of one size are grouped. Small ones are computed in parallel, one per
// thread. Each of the others is computed by all threads together (orthogonalise.h). On an
// accelerator (DeviceSteps) the norms of all matrices are taken together. Then the matrices are
// computed one by one, with the library's products, which do not use the symmetry of X Xᵀ.

/// The largest number of elements of a small matrix. Larger ones keep all threads busy.
constexpr int64_t kSmallElements = int64_t{1} << 20;
/// The same limit for targets on which the bits of a product depend on the number of threads. On
/// them the size of a matrix alone decides how it is computed. The number of matrices must not
/// matter, because ranks may divide the matrices among themselves.
constexpr int64_t kSmallElementsForAnyCount = int64_t{1} << 17;

/// A matrix of one of the inputs.
struct InputMatrix {
  size_t input = 0;   // the index of the input
  int64_t begin = 0;  // the index of the matrix's first element in the input
};

/// All matrices of one size.
struct SizeGroup {
  MatrixExtent extent;
  std::vector<InputMatrix> matrices;

  /// Returns the number of matrices that are computed in parallel. All threads together compute the
  /// remaining ones, which are fewer than the threads and would leave some of them idle.
  int64_t count_in_parallel(const Target& target) const {
    const int64_t count = std::ssize(matrices);
    const int64_t elements = extent.elements();
    if (!rows_keep_their_bits(target)) return elements <= kSmallElementsForAnyCount ? count : 0;
    return elements <= kSmallElements ? count - count % target.threads : 0;
  }
};

/// Returns the matrices of all inputs, grouped by size.
std::vector<SizeGroup> groups_of(std::span<const Spec> inputs) {
  std::vector<SizeGroup> groups;
  for (size_t input = 0; input < inputs.size(); ++input) {
    const MatrixExtent extent = matrix_extent(inputs[input].shape);
    auto group = std::ranges::find_if(groups, [&](const SizeGroup& candidate) {
      return candidate.extent.rows == extent.rows && candidate.extent.columns == extent.columns;
    });
    if (group == groups.end()) {
      group = groups.insert(group, {{1, extent.rows, extent.columns}, {}});
    }
    for (int64_t i = 0; i < extent.count; ++i) {
      group->matrices.push_back({input, i * extent.elements()});
    }
  }
  return groups;
}

/// The products of a step: gram = X Xᵀ, square = gram · gram, next = P X, where the polynomial P
/// replaces `square`. X is not transposed: for a tall X, gram is Xᵀ X and next is X P.
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

/// The parts of the workspace on a device, as offsets in bytes.
struct DeviceLayout : WorkspaceParts {
  DeviceLayout(const Target& target, std::span<const Spec> matrices) {
    int64_t blocks = 0, elements = 0, largest_n = 0, products = 0;
    const DType dtype = matrices[0].dtype;
    for (const Spec& matrix : matrices) {
      const MatrixExtent extent = matrix_extent(matrix.shape);
      count += extent.count;
      blocks += extent.count * row_blocks<MatrixNormRow<float>>(extent.elements());
      elements = std::max(elements, extent.elements());
      const StepProducts step(extent, dtype, target.threads);
      largest_n = std::max(largest_n, step.n);
      for (const GemmShape& shape : {step.gram, step.square, step.next}) {
        products = std::max(products, device_gemm_workspace_bytes(target, shape));
      }
    }
    append(table_bytes<MatrixNormRow<float>>(static_cast<size_t>(count)));  // for put_table()
    partial = append(blocks * dtype_size(DType::f64));
    factors = append(count * dtype_size(DType::f64));
    x = append(elements * dtype_size(dtype));
    gram = append(largest_n * largest_n * dtype_size(dtype));
    square = append(largest_n * largest_n * dtype_size(dtype));
    scratch = append(products);
  }

  int64_t count = 0;
  int64_t partial, factors, x, gram, square, scratch;
};

/// Puts the steps of one execution into its stream.
template <typename Vendor, typename T>
class DeviceSteps {
 public:
  DeviceSteps(const Execution& execution, int64_t steps)
      : execution_(execution),
        steps_(steps),
        layout_(execution.runtime.target(), specs_of(execution.inputs)) {}

  void run() {
    find_norms();
    int64_t matrix_index = 0;
    for (size_t i = 0; i < execution_.inputs.size(); ++i) {
      const MatrixExtent extent = matrix_extent(execution_.inputs[i].shape());
      for (int64_t e = 0; e < extent.count; ++e, ++matrix_index) {
        const int64_t first = e * extent.elements();
        run_matrix(extent, part<double>(layout_.factors) + matrix_index,
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

  void find_norms() {
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
    // X alternates between two buffers. After an even number of steps it ends where it began, and
    // it must end in the first one.
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
    const T* const first_factor = products.tall ? x : square;
    const T* const second_factor = products.tall ? square : x;
    device_gemm(execution_, products.next, first_factor, second_factor, next, scratch);
  }

  const Execution& execution_;
  int64_t steps_;
  DeviceLayout layout_;
};

/// inputs: matrices; outputs: the same, orthogonalised.
class NewtonSchulz final : public Operation {
 public:
  NewtonSchulz(int64_t steps, std::vector<int> dims, NewtonSchulzPieces pieces)
      : steps_(steps), dims_(std::move(dims)), pieces_(pieces) {}
  std::string_view name() const override {
    return of_blocks() ? "newton_schulz_of_blocks" : "newton_schulz";
  }

  std::string labels(std::span<const Spec> inputs) const override {
    return whole_matrices_labels(inputs, ", ") + " -> " + matrices_labels(inputs, ", ");
  }
  HandRule hand_rule() const override {
    return of_blocks() ? matrices_rule(name(), 0, 1) : whole_matrices_rule(name(), dims_);
  }

  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    for (const Spec& matrix : inputs) {
      TESSERA_EXPECT(*this, has_matrices(matrix.shape) && matrix.dtype == inputs[0].dtype,
                     "a matrix {} beside one of {}", text_of(matrix), dtype_name(inputs[0].dtype));
    }
    return {inputs.begin(), inputs.end()};
  }

  /// Counts the products as repeated FLOPs, which MFU leaves out: they are not the model's.
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    Cost cost{.bytes = operand_bytes(inputs, outputs)};
    for (const Spec& matrix : inputs) {
      const MatrixExtent extent = matrix_extent(matrix.shape);
      cost.repeated_flops += static_cast<double>(extent.count * steps_) *
                             newton_schulz_step_flops(extent.rows, extent.columns);
    }
    return cost;
  }
  int in_place_input(int output) const override { return output; }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    if (target.device != Device::cpu) return DeviceLayout(target, inputs).bytes;
    int64_t bytes = 0;
    for (const SizeGroup& group : groups_of(inputs)) {
      const auto bytes_with = [&](int threads) {
        return Orthogonalise::workspace_bytes(target,
                                              orthogonalise_size(group, inputs[0].dtype, threads));
      };
      const int64_t in_parallel = group.count_in_parallel(target);
      if (in_parallel > 0) bytes = std::max(bytes, target.threads * bytes_with(1));
      if (in_parallel < std::ssize(group.matrices)) {
        bytes = std::max(bytes, bytes_with(target.threads));
      }
    }
    return bytes;
  }

  void require_runnable(Runtime& runtime, std::span<const Spec>) const override {
    require_device_gemm(runtime);
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) {
      return on_device(execution, [&]<typename Vendor, typename T>(Vendor, T) {
        DeviceSteps<Vendor, T>(execution, steps_).run();
      });
    }
    const Target& target = execution.runtime.target();
    const DType dtype = execution.inputs[0].dtype();
    const int64_t element_bytes = dtype_size(dtype);
    std::byte* const workspace = execution.workspace.data();
    for (const SizeGroup& group : groups_of(specs_of(execution.inputs))) {
      const auto run_matrix = [&](const Orthogonalise& steps, int64_t index, std::byte* memory) {
        const InputMatrix& matrix = group.matrices[static_cast<size_t>(index)];
        steps.run(execution.inputs[matrix.input].raw() + matrix.begin * element_bytes,
                  execution.outputs[matrix.input].raw() + matrix.begin * element_bytes, memory);
      };
      const int64_t in_parallel = group.count_in_parallel(target);
      if (in_parallel > 0) {
        const auto thread_size = orthogonalise_size(group, dtype, 1);
        const int64_t bytes = Orthogonalise::workspace_bytes(target, thread_size);
        const Orthogonalise steps(execution.runtime, thread_size);
        parallel_items(target.threads, in_parallel, [&](int64_t index, int thread) {
          run_matrix(steps, index, workspace + thread * bytes);
        });
      }
      if (in_parallel == std::ssize(group.matrices)) continue;
      const Orthogonalise steps(execution.runtime,
                                orthogonalise_size(group, dtype, target.threads));
      for (int64_t i = in_parallel; i < std::ssize(group.matrices); ++i) {
        run_matrix(steps, i, workspace);
      }
    }
  }

 private:
  bool of_blocks() const { return pieces_ == NewtonSchulzPieces::blocks; }
  Orthogonalise::Size orthogonalise_size(const SizeGroup& group, DType dtype, int threads) const {
    return {.extent = group.extent, .dtype = dtype, .steps = steps_, .threads = threads};
  }

  int64_t steps_;
  std::vector<int> dims_;
  NewtonSchulzPieces pieces_;
};

}  // namespace

double newton_schulz_step_flops(int64_t rows, int64_t columns) {
  const auto n = static_cast<double>(std::min(rows, columns));
  const auto m = static_cast<double>(std::max(rows, columns));
  return n * n * m + n * n * n + 2 * n * n * m;
}

std::vector<Value> newton_schulz(Builder& builder, std::span<const Value> matrices, int64_t steps,
                                 NewtonSchulzPieces pieces) {
  std::vector<int> dims;
  for (const Value matrix : matrices) dims.push_back(builder.spec(matrix).shape.rank());
  return builder.apply(std::make_shared<NewtonSchulz>(steps, std::move(dims), pieces),
                       {matrices.begin(), matrices.end()});
}

}  // namespace tessera
