#include "ops/update/newton_schulz.h"

#include <algorithm>

#include "ops/gemm/device_gemm.h"
#include "ops/gemm/gemm_plan.h"
#include "ops/support.h"
#include "ops/update/newton_schulz_device.h"
#include "ops/update/orthogonalise.h"

namespace tessera {
namespace {

/// The most elements of matrices that are computed in parallel, one per thread. A product of larger
/// ones keeps all threads busy.
constexpr int64_t kSmallMatrix = int64_t{1} << 20;
/// The same limit for targets on which the bits of a product depend on the number of threads. There
/// only the size of a matrix may decide how it is computed, not the number of matrices, because
/// ranks may divide the matrices among themselves.
constexpr int64_t kSmallOfAnyNumber = int64_t{1} << 17;

/// A matrix of one of the inputs.
struct InputMatrix {
  size_t value = 0;   // the index of the input
  int64_t first = 0;  // the index of its first element
};

/// All matrices of one size.
struct SizeGroup {
  MatrixExtent extent;
  std::vector<InputMatrix> matrices;

  /// Returns the number of matrices that are computed in parallel. All threads together compute the
  /// rest, which would leave some of them idle.
  int64_t beside(const Target& target) const {
    const int64_t count = std::ssize(matrices);
    if (!rows_keep_their_bits(target)) return extent.elements() <= kSmallOfAnyNumber ? count : 0;
    return extent.elements() <= kSmallMatrix ? count - count % target.threads : 0;
  }
};

std::vector<SizeGroup> groups_of(std::span<const Shape> shapes) {
  std::vector<SizeGroup> groups;
  for (size_t value = 0; value < shapes.size(); ++value) {
    const MatrixExtent extent = matrix_extent(shapes[value]);
    auto group = std::ranges::find_if(groups, [&](const SizeGroup& other) {
      return other.extent.rows == extent.rows && other.extent.columns == extent.columns;
    });
    if (group == groups.end()) {
      group = groups.insert(group, {{1, extent.rows, extent.columns}, {}});
    }
    for (int64_t i = 0; i < extent.count; ++i) {
      group->matrices.push_back({value, i * extent.elements()});
    }
  }
  return groups;
}

template <typename Item>
std::vector<Shape> shapes_of(std::span<const Item> items) {
  std::vector<Shape> shapes;
  for (const Item& item : items) {
    if constexpr (std::is_same_v<Item, Spec>) {
      shapes.push_back(item.shape);
    } else {
      shapes.push_back(item.shape());
    }
  }
  return shapes;
}

/// inputs: matrices; outputs: the same, orthogonalised.
class NewtonSchulz final : public Operation {
 public:
  NewtonSchulz(int64_t steps, std::vector<int> dims, NewtonSchulzPieces pieces)
      : steps_(steps), dims_(std::move(dims)), pieces_(pieces) {}
  std::string_view name() const override {
    return blocks() ? "newton_schulz_of_blocks" : "newton_schulz";
  }

  std::string labels(std::span<const Spec> inputs) const override {
    return matrices_labels(inputs, ", ", "", true) + " -> " + matrices_labels(inputs, ", ");
  }
  HandRule hand_rule() const override {
    return blocks() ? matrices_rule(name(), 0, 1) : whole_matrices_rule(name(), dims_);
  }

  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    for (const Spec& matrix : inputs) {
      TESSERA_EXPECT(*this, has_matrices(matrix.shape) && matrix.dtype == inputs[0].dtype,
                     "a matrix {} {} beside one of {}", dtype_name(matrix.dtype),
                     matrix.shape.text(), dtype_name(inputs[0].dtype));
    }
    return {inputs.begin(), inputs.end()};
  }

  /// Counts the products as repeated FLOPs: they are not the model's, so its MFU does not count
  /// them.
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
    if (target.device != Device::cpu) return newton_schulz_device_bytes(target, inputs);
    int64_t bytes = 0;
    for (const SizeGroup& group : groups_of(shapes_of(inputs))) {
      const auto bytes_with = [&](int threads) {
        return Orthogonalise::workspace_bytes(target, size(group, inputs[0].dtype, threads));
      };
      const int64_t beside = group.beside(target);
      if (beside > 0) bytes = std::max(bytes, target.threads * bytes_with(1));
      if (beside < std::ssize(group.matrices)) bytes = std::max(bytes, bytes_with(target.threads));
    }
    return bytes;
  }

  void require_runnable(Runtime& runtime, std::span<const Spec>) const override {
    require_device_gemm(runtime);
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return newton_schulz_on_device(execution, steps_);
    const Target& target = execution.runtime.target();
    const DType dtype = execution.inputs[0].dtype();
    const int64_t element = dtype_size(dtype);
    std::byte* const workspace = execution.workspace.data();
    for (const SizeGroup& group : groups_of(shapes_of(execution.inputs))) {
      const auto run_one = [&](const Orthogonalise& one, int64_t number, std::byte* memory) {
        const InputMatrix& matrix = group.matrices[static_cast<size_t>(number)];
        one.run(execution.inputs[matrix.value].raw() + matrix.first * element,
                execution.outputs[matrix.value].raw() + matrix.first * element, memory);
      };
      const int64_t beside = group.beside(target);
      if (beside > 0) {
        const auto thread_size = size(group, dtype, 1);
        const int64_t bytes = Orthogonalise::workspace_bytes(target, thread_size);
        const Orthogonalise one(execution.runtime, thread_size);
        parallel_items(target.threads, beside, [&](int64_t number, int thread) {
          run_one(one, number, workspace + thread * bytes);
        });
      }
      if (beside == std::ssize(group.matrices)) continue;
      const Orthogonalise one(execution.runtime, size(group, dtype, target.threads));
      for (int64_t i = beside; i < std::ssize(group.matrices); ++i) run_one(one, i, workspace);
    }
  }

 private:
  bool blocks() const { return pieces_ == NewtonSchulzPieces::blocks; }
  Orthogonalise::Size size(const SizeGroup& group, DType dtype, int threads) const {
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
