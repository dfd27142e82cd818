#include "ops/by_processor.h"
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
/// [experts + 1]; output [rows, in].
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
    return fmt::format("{}, #{} (E r) -> (E r) i{}", labels, 2 * pairs, tied("o#", pairs));
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
                     "a gradient {} {} with a weight {} {}", dtype_name(gradient.dtype),
                     gradient.shape.text(), dtype_name(weight.dtype), weight.shape.text());
    }
    return {{{inputs[0].shape[0], inputs[pairs].shape[2]}, inputs[0].dtype}};
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    if (target.device != Device::cpu && has_device_grouped(target.device, inputs[0].dtype)) {
      return device_workspace_bytes(target, inputs);
    }
    if (use_plain(target, inputs[0].dtype) || inputs[0].shape[0] == 0) return 0;
    const size_t pairs = inputs.size() / 2;
    int64_t product_bytes = 0;
    for (size_t i = 0; i < pairs; ++i) {
      product_bytes =
          std::max(product_bytes, product_bytes_of(target, inputs[i].shape, inputs[pairs + i].shape,
                                                   inputs[i].dtype, i > 0));
    }
    return workspace(inputs[0].shape[0], inputs[pairs].shape, product_bytes).bytes(target.threads);
  }

  void require_runnable(Runtime& runtime, std::span<const Spec> inputs) const override {
    const size_t pairs = inputs.size() / 2;
    for (size_t i = 0; i < pairs; ++i) {
      require_device_grouped(runtime, name(),
                             device_shape(inputs[i].shape, inputs[pairs + i].shape, inputs[i].dtype,
                                          {.number = i, .count = pairs}));
    }
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    const Tensor& dx = execution.outputs[0];
    if (use_plain(execution.runtime.target(), dx.dtype())) {
      const size_t pairs = execution.inputs.size() / 2;
      dispatch_floating(dx.dtype(), [&](auto type) {
        grouped_linear_input_gradient_plain<decltype(type)>(
            execution.runtime, execution.inputs.first(pairs),
            execution.inputs.subspan(pairs, pairs), execution.inputs.back(), dx);
      });
    } else if (dx.dtype() == DType::bf16) {
      run_fast<BFloat16>(execution);
    } else {
      run_fast<float>(execution);
    }
  }

 private:
  /// One of several pairs of a gradient and a weight.
  struct Pair {
    size_t number = 0;
    size_t count = 1;
    bool last() const { return number + 1 == count; }
  };

  /// Returns the product of one pair. The sum of several pairs stays in f32 until the last pair;
  /// each pair but the first adds to it.
  static GroupedShape device_shape(const Shape& gradient, const Shape& weight, DType dtype,
                                   const Pair& pair) {
    return {.kind = GroupedKind::input_gradient,
            .groups = weight[0],
            .rows = gradient[0],
            .in = weight[2],
            .out = weight[1],
            .input = dtype,
            .output = pair.last() ? dtype : DType::f32,
            .adds = pair.number > 0};
  }

  /// Returns the bytes of the f32 rows in which a device sums the products of several pairs in
  /// bf16, so that the sum is rounded once.
  static int64_t device_sum_bytes(size_t pairs, int64_t rows, int64_t width, DType dtype) {
    return pairs > 1 && dtype == DType::bf16 ? aligned_bytes(rows * width * dtype_size(DType::f32))
                                             : 0;
  }

  int64_t device_workspace_bytes(const Target& target, std::span<const Spec> inputs) const {
    const size_t pairs = inputs.size() / 2;
    int64_t product = 0;
    for (size_t i = 0; i < pairs; ++i) {
      product =
          std::max(product, device_grouped_workspace_bytes(
                                target, name(),
                                device_shape(inputs[i].shape, inputs[pairs + i].shape,
                                             inputs[i].dtype, {.number = i, .count = pairs})));
    }
    return product +
           device_sum_bytes(pairs, inputs[0].shape[0], inputs[pairs].shape[2], inputs[0].dtype);
  }

  void run_on_device(const Execution& execution) const {
    const Tensor& dx = execution.outputs[0];
    const DType dtype = dx.dtype();
    if (!has_device_grouped(execution.stream->device(), dtype)) {
      return run_by_processor(*this, execution);
    }
    const size_t pairs = execution.inputs.size() / 2;
    const Tensor& offsets = execution.inputs.back();
    std::byte* const memory = execution.workspace.data();
    const int64_t sum_bytes = device_sum_bytes(pairs, dx.shape()[0], dx.shape()[1], dtype);
    void* const sum = sum_bytes > 0 ? memory : dx.address();
    for (size_t i = 0; i < pairs; ++i) {
      const Pair pair{.number = i, .count = pairs};
      const Tensor& gradient = execution.inputs[i];
      const Tensor& weight = execution.inputs[pairs + i];
      device_grouped(execution, name(), device_shape(gradient.shape(), weight.shape(), dtype, pair),
                     {.rows = gradient.address(),
                      .other = weight.address(),
                      .offsets = offsets.pointer<int32_t>(),
                      .result = pair.last() ? dx.address() : sum,
                      .sum = static_cast<const float*>(sum)},
                     memory + sum_bytes);
    }
  }

  /// Returns the product of a piece, without its number of rows, which varies.
  static GemmShape product(const Shape& gradient, const Shape& weight, DType dtype,
                           bool accumulate) {
    return {.n = weight[2],
            .k = gradient[1],
            .input = dtype,
            .output = DType::f32,
            .accumulate = accumulate};
  }

  static int64_t product_bytes_of(const Target& target, const Shape& gradient, const Shape& weight,
                                  DType dtype, bool accumulate) {
    return PieceProducts::workspace_bytes(target, product(gradient, weight, dtype, accumulate),
                                          &GemmShape::m, gradient[0]);
  }

  static PieceWorkspace workspace(int64_t rows, const Shape& weight, int64_t product_bytes) {
    return {piece_bound(rows, weight[0]), kPieceRows * weight[2] * dtype_size(DType::f32),
            product_bytes};
  }

  /// Sums the products of each piece in f32 rows of the thread, which stay in the cache, and then
  /// rounds them. A product may cover neighbouring rows (see GroupedLinear).
  template <typename T>
  static void run_fast(const Execution& execution) {
    const Tensor& dx = execution.outputs[0];
    if (dx.shape()[0] == 0) return;
    const size_t pairs = execution.inputs.size() / 2;
    const int64_t width = dx.shape()[1];
    std::vector<PieceProducts> sized;
    int64_t product_bytes = 0;
    for (size_t i = 0; i < pairs; ++i) {
      const Shape& gradient = execution.inputs[i].shape();
      const Shape& weight = execution.inputs[pairs + i].shape();
      sized.emplace_back(execution.runtime, product(gradient, weight, dx.dtype(), i > 0),
                         &GemmShape::m, gradient[0]);
      product_bytes = std::max(product_bytes, product_bytes_of(execution.runtime.target(), gradient,
                                                               weight, dx.dtype(), i > 0));
    }
    const std::span<const int32_t> offsets = execution.inputs.back().values<int32_t>();
    const PieceWorkspace areas =
        workspace(dx.shape()[0], execution.inputs[pairs].shape(), product_bytes);
    const auto pieces = cut_rows(offsets, areas.pieces(execution.workspace));
    parallel_items(execution.runtime.threads(), static_cast<int64_t>(pieces.size()),
                   [&](int64_t item, int thread) {
                     const RowPiece& piece = pieces[static_cast<size_t>(item)];
                     const int64_t size = sized[0].size(piece.rows);
                     const int64_t start = std::min<int64_t>(piece.row, dx.shape()[0] - size);
                     auto* sum =
                         reinterpret_cast<float*>(areas.staged(execution.workspace, thread));
                     for (size_t i = 0; i < pairs; ++i) {
                       sized[i][piece.rows].run(
                           execution.inputs[i].slice(start, start + size).raw(),
                           execution.inputs[pairs + i].slice(piece.expert, piece.expert + 1).raw(),
                           sum, areas.product(execution.workspace, thread));
                     }
                     const float* own = sum + (piece.row - start) * width;
                     T* result = dx.data<T>() + piece.row * width;
                     for (int64_t i = 0; i < piece.rows * width; ++i)
                       result[i] = static_cast<T>(own[i]);
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
