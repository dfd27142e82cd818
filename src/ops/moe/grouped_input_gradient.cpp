#include "ops/elementwise/elementwise.h"
#include "ops/labels.h"
#include "ops/moe/device_grouped.h"
#include "ops/moe/grouped_linear.h"
#include "ops/moe/grouped_linear_plain.h"
#include "ops/moe/row_pieces.h"
#include "ops/support.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

/// inputs: n gradients [rows, out_i], then n weights [experts, out_i, in], then offsets i32
/// [experts + 1]; output [rows, in], the sum of the products of the n pairs. On a device there is
/// one grouped product per pair (ops/moe/device_grouped.h). On the processor the fast kernel
/// multiplies pieces of the experts' rows (ops/moe/row_pieces.h).
class GroupedLinearInputGradient final : public Operation {
 public:
  std::string_view name() const override { return "grouped_linear_input_gradient"; }

  std::string labels(std::span<const Spec> inputs) const override {
    const size_t pairs = inputs.size() / 2;
    std::string labels;
    for (size_t i = 0; i < pairs; ++i) {
      labels +=
          fmt::format("{0}#{1} ~(E r) o{1}, #{2} ~E o{1} i", i == 0 ? "" : " + ", i, pairs + i);
    }
    return fmt::format("{}, #{} (E r) -> (E r) i{}", labels, 2 * pairs, tied("o@", pairs));
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() >= 3 && inputs.size() % 2 == 1,
                   "{} inputs; as many gradients as weights, and offsets, are expected",
                   inputs.size());
    const size_t pairs = inputs.size() / 2;
    for (size_t i = 0; i < pairs; ++i) {
      const Spec& gradient = inputs[i];
      const Spec& weight = inputs[pairs + i];
      TESSERA_EXPECT(*this,
                     gradient.shape[1] == weight.shape[1] && gradient.dtype == weight.dtype &&
                         gradient.shape[0] == inputs[0].shape[0] &&
                         weight.shape[0] + 1 == inputs.back().shape[0] &&
                         weight.shape[2] == inputs[pairs].shape[2],
                     "a gradient {} with a weight {}", text_of(gradient), text_of(weight));
    }
    return {{{inputs[0].shape[0], inputs[pairs].shape[2]}, inputs[0].dtype}};
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    const size_t pairs = inputs.size() / 2;
    const int64_t rows = inputs[0].shape[0];
    if (target.device != Device::cpu && has_device_grouped(target.device, inputs[0].dtype)) {
      int64_t product_bytes = 0;
      for (size_t pair = 0; pair < pairs; ++pair) {
        product_bytes = std::max(product_bytes, device_grouped_workspace_bytes(
                                                    target, name(), device_shape(inputs, pair)));
      }
      return product_bytes + device_sum_bytes(pairs, rows, inputs[pairs].shape[2], inputs[0].dtype);
    }
    if (use_plain(target, inputs[0].dtype) || rows == 0) return 0;
    return workspace(target, inputs).bytes(target.threads);
  }

  void require_runnable(Runtime& runtime, std::span<const Spec> inputs) const override {
    for (size_t pair = 0; pair < inputs.size() / 2; ++pair) {
      require_device_grouped(runtime, name(), device_shape(inputs, pair));
    }
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    const Tensor& x_gradient = execution.outputs[0];
    if (use_plain(execution.runtime.target(), x_gradient.dtype())) {
      const size_t pairs = execution.inputs.size() / 2;
      dispatch_floating(x_gradient.dtype(), [&]<typename T>(T) {
        grouped_linear_input_gradient_plain<T>(execution.runtime, execution.inputs.first(pairs),
                                               execution.inputs.subspan(pairs, pairs),
                                               execution.inputs.back(), x_gradient);
      });
    } else if (x_gradient.dtype() == DType::bf16) {
      run_fast<BFloat16>(execution);
    } else {
      run_fast<float>(execution);
    }
  }

 private:
  /// Returns the product of one pair of a gradient and a weight. Each pair after the first adds to
  /// the sum of the pairs before it, which stays in f32 until the last pair.
  static GroupedShape device_shape(std::span<const Spec> inputs, size_t pair) {
    const size_t pairs = inputs.size() / 2;
    const Spec& gradient = inputs[pair];
    const Shape& weight = inputs[pairs + pair].shape;
    return {.kind = GroupedKind::input_gradient,
            .groups = weight[0],
            .rows = gradient.shape[0],
            .in = weight[2],
            .out = weight[1],
            .input = gradient.dtype,
            .output = pair + 1 == pairs ? gradient.dtype : DType::f32,
            .adds = pair > 0};
  }

  /// Returns the bytes of the f32 rows in which a device sums the products of several pairs in
  /// bf16, so that the sum is rounded once.
  static int64_t device_sum_bytes(size_t pairs, int64_t rows, int64_t width, DType dtype) {
    return pairs > 1 && dtype == DType::bf16 ? aligned_bytes(rows * width * dtype_size(DType::f32))
                                             : 0;
  }

  void run_on_device(const Execution& execution) const {
    const Tensor& x_gradient = execution.outputs[0];
    const DType dtype = x_gradient.dtype();
    if (!has_device_grouped(execution.stream->device(), dtype)) {
      return run_by_processor(*this, execution);
    }
    const std::vector<Spec> inputs = specs_of(execution.inputs);
    const size_t pairs = inputs.size() / 2;
    std::byte* const memory = execution.workspace.data();
    const int64_t sum_bytes =
        device_sum_bytes(pairs, x_gradient.shape()[0], x_gradient.shape()[1], dtype);
    void* const sum = sum_bytes > 0 ? memory : x_gradient.address();
    for (size_t pair = 0; pair < pairs; ++pair) {
      device_grouped(execution, name(), device_shape(inputs, pair),
                     {.rows = execution.inputs[pair].address(),
                      .second = execution.inputs[pairs + pair].address(),
                      .offsets = execution.inputs.back().pointer<int32_t>(),
                      .result = pair + 1 == pairs ? x_gradient.address() : sum,
                      .sum = static_cast<const float*>(sum)},
                     memory + sum_bytes);
    }
  }

  /// Returns the product of a piece of one pair, without its number of rows, which varies.
  static GemmShape product(std::span<const Spec> inputs, size_t pair) {
    const Shape& weight = inputs[inputs.size() / 2 + pair].shape;
    return {.n = weight[2],
            .k = weight[1],
            .input = inputs[pair].dtype,
            .output = DType::f32,
            .accumulate = pair > 0};
  }

  /// Returns the layout of the workspace, with room for a piece's sum and the largest product.
  static PieceWorkspace workspace(const Target& target, std::span<const Spec> inputs) {
    const size_t pairs = inputs.size() / 2;
    const int64_t rows = inputs[0].shape[0];
    const Shape& weight = inputs[pairs].shape;
    int64_t product_bytes = 0;
    for (size_t pair = 0; pair < pairs; ++pair) {
      product_bytes = std::max(
          product_bytes,
          PieceProducts::workspace_bytes(target, product(inputs, pair), &GemmShape::m, rows));
    }
    return {piece_bound(rows, weight[0]), kPieceRows * weight[2] * dtype_size(DType::f32),
            product_bytes};
  }

  /// Computes several pieces at a time, one per thread. The products of a piece are summed in f32
  /// rows of the thread, which stay in the cache, and then rounded. As in GroupedLinear, a product
  /// may also cover rows before or after its piece.
  template <typename T>
  static void run_fast(const Execution& execution) {
    const Tensor& x_gradient = execution.outputs[0];
    if (x_gradient.shape()[0] == 0) return;
    const std::vector<Spec> inputs = specs_of(execution.inputs);
    const size_t pairs = inputs.size() / 2;
    const int64_t width = x_gradient.shape()[1];
    std::vector<PieceProducts> products;
    for (size_t pair = 0; pair < pairs; ++pair) {
      products.emplace_back(execution.runtime, product(inputs, pair), &GemmShape::m,
                            x_gradient.shape()[0]);
    }
    const PieceWorkspace areas = workspace(execution.runtime.target(), inputs);
    const auto pieces =
        cut_rows(execution.inputs.back().values<int32_t>(), areas.pieces(execution.workspace));
    parallel_items(execution.runtime.threads(), std::ssize(pieces), [&](int64_t item, int thread) {
      const RowPiece& piece = pieces[static_cast<size_t>(item)];
      const int64_t product_rows = products[0].size(piece.rows);
      const int64_t first_row = std::min<int64_t>(piece.row, x_gradient.shape()[0] - product_rows);
      auto* sum = reinterpret_cast<float*>(areas.staged(execution.workspace, thread));
      for (size_t pair = 0; pair < pairs; ++pair) {
        const Tensor& weight = execution.inputs[pairs + pair];
        products[pair][piece.rows].run(
            execution.inputs[pair].slice(first_row, first_row + product_rows).raw(),
            weight.slice(piece.expert, piece.expert + 1).raw(), sum,
            areas.product(execution.workspace, thread));
      }
      const float* piece_sum = sum + (piece.row - first_row) * width;
      T* result = x_gradient.data<T>() + piece.row * width;
      for (int64_t i = 0; i < piece.rows * width; ++i) result[i] = static_cast<T>(piece_sum[i]);
    });
  }
};

}  // namespace

Value grouped_linear_input_gradient(Builder& builder, std::span<const Value> gradients,
                                    std::span<const Value> weights, Value offsets, Value x) {
  std::vector<Value> inputs;
  for (const Value gradient : gradients) {
    inputs.push_back(cast(builder, gradient, builder.spec(x).dtype));
  }
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  inputs.push_back(offsets);
  return builder.apply_single(std::make_shared<GroupedLinearInputGradient>(), std::move(inputs));
}

}  // namespace tessera
