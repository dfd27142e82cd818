#include <cstring>

#include "ops/elementwise/elementwise.h"
#include "ops/moe/device_grouped.h"
#include "ops/moe/grouped_linear.h"
#include "ops/moe/grouped_linear_plain.h"
#include "ops/moe/row_pieces.h"
#include "ops/support.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

/// Computes gradient[e]ᵀ · x[e] for each expert e. On the processor the fast kernel divides each
/// expert's weight into tiles of rows, and the expert's rows into pieces (ops/moe/row_pieces.h).
/// inputs: x [rows, in], gradient [rows, out], offsets i32 [experts + 1] and, with `accumulate`,
/// the main gradient [experts, out, in], to which run() adds. Without `accumulate` there is one
/// output of that shape. All kernels add, so run() fills it with zeros first.
class GroupedLinearWeightGradient final : public Operation {
 public:
  explicit GroupedLinearWeightGradient(bool accumulate) : accumulate_(accumulate) {}
  std::string_view name() const override { return "grouped_linear_weight_gradient"; }

  std::string labels(std::span<const Spec>) const override {
    return accumulate_ ? "~(E r) i, ~(E r) o, (E r) -> += E o i"
                       : "~(E r) i, ~(E r) o, (E r) -> E o i";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == (accumulate_ ? 4U : 3U), "{} inputs", inputs.size());
    const Spec& x = inputs[0];
    const Spec& gradient = inputs[1];
    TESSERA_EXPECT(*this, x.shape[0] == gradient.shape[0] && x.dtype == gradient.dtype,
                   "an input {} with a gradient {}", text_of(x), text_of(gradient));
    const Spec result{{inputs[2].shape[0] - 1, gradient.shape[1], x.shape[1]},
                      accumulation_dtype(x.dtype)};
    if (!accumulate_) return {result};
    TESSERA_EXPECT(*this, is_like(inputs[3], result), "adds {} into {}", text_of(result),
                   text_of(inputs[3]));
    return {};
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    if (target.device != Device::cpu && has_device_grouped(target.device, inputs[0].dtype)) {
      return device_grouped_workspace_bytes(target, name(), device_shape(inputs));
    }
    if (use_plain(target, inputs[0].dtype) || inputs[0].shape[0] == 0) return 0;
    return Plan(target, inputs[0].shape, inputs[1].shape, inputs[0].dtype)
        .areas.bytes(target.threads);
  }

  std::vector<int> updated_inputs() const override {
    return accumulate_ ? std::vector<int>{3} : std::vector<int>{};
  }

  void require_runnable(Runtime& runtime, std::span<const Spec> inputs) const override {
    require_device_grouped(runtime, name(), device_shape(inputs));
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    const Tensor& x = execution.inputs[0];
    const Tensor& result = accumulate_ ? execution.inputs[3] : execution.outputs[0];
    if (!accumulate_) result.fill_zero();
    if (use_plain(execution.runtime.target(), x.dtype())) {
      dispatch_floating(x.dtype(), [&]<typename T>(T) {
        grouped_linear_weight_gradient_plain<T>(execution.runtime, x, execution.inputs[1],
                                                execution.inputs[2], result);
      });
    } else if (x.shape()[0] > 0) {
      run_fast(execution, result);
    }
  }

 private:
  static GroupedShape device_shape(std::span<const Spec> inputs) {
    return {.kind = GroupedKind::weight_gradient,
            .groups = inputs[2].shape[0] - 1,
            .rows = inputs[0].shape[0],
            .in = inputs[0].shape[1],
            .out = inputs[1].shape[1],
            .input = inputs[0].dtype,
            .output = DType::f32};
  }

  void run_on_device(const Execution& execution) const {
    const std::span<const Tensor> inputs = execution.inputs;
    if (!has_device_grouped(execution.stream->device(), inputs[0].dtype())) {
      return run_by_processor(*this, execution);
    }
    const Tensor& result = accumulate_ ? inputs[3] : execution.outputs[0];
    if (!accumulate_) execution.stream->fill_zero(result.address(), result.bytes());
    device_grouped(execution, name(), device_shape(specs_of(inputs)),
                   {.rows = inputs[1].address(),
                    .second = inputs[0].address(),
                    .offsets = inputs[2].pointer<int32_t>(),
                    .result = result.address()},
                   execution.workspace.data());
  }

  /// The rows of a tile of an expert's weight. A thread computes one tile at a time, so that many
  /// threads have work even if there are few experts.
  static constexpr int64_t kTileRows = 256;

  /// The products of a whole tile and of the last tile, and the layout of the workspace. In both
  /// products k, the rows of a piece, varies. The workspace has no list of pieces.
  struct Plan {
    Plan(const Target& target, const Shape& x, const Shape& gradient, DType dtype)
        : in(x[1]),
          out(gradient[1]),
          tiles((out + kTileRows - 1) / kTileRows),
          whole(product(x, gradient, dtype, std::min(kTileRows, out))),
          last(product(x, gradient, dtype, out - (tiles - 1) * kTileRows)),
          gradient_bytes(aligned_bytes(kPieceRows * out * dtype_size(dtype))),
          areas(0, gradient_bytes + kPieceRows * in * dtype_size(dtype),
                std::max(bytes_of(target, whole, x), bytes_of(target, last, x))) {}

    static GemmShape product(const Shape& x, const Shape& gradient, DType dtype,
                             int64_t tile_rows) {
      return {.m = tile_rows,
              .n = x[1],
              .input = dtype,
              .output = DType::f32,
              .transpose_a = true,
              .accumulate = true,
              .lda = gradient[1]};
    }
    static int64_t bytes_of(const Target& target, const GemmShape& product, const Shape& x) {
      return PieceProducts::workspace_bytes(target, product, &GemmShape::k, x[0]);
    }

    int64_t in;
    int64_t out;
    int64_t tiles;
    GemmShape whole;
    GemmShape last;
    int64_t gradient_bytes;  // bytes of the gradient's staged rows; the staged rows of x follow
    PieceWorkspace areas;
  };

  /// Computes one tile of an expert's weight gradient at a time per thread. The products of the
  /// expert's pieces are added to the tile in order, so the bits do not depend on the threads.
  static void run_fast(const Execution& execution, const Tensor& result) {
    const Tensor& x = execution.inputs[0];
    const Tensor& gradient = execution.inputs[1];
    const int32_t* offsets = execution.inputs[2].data<int32_t>();
    const Plan plan(execution.runtime.target(), x.shape(), gradient.shape(), x.dtype());
    const PieceProducts whole(execution.runtime, plan.whole, &GemmShape::k, x.shape()[0]);
    const PieceProducts last(execution.runtime, plan.last, &GemmShape::k, x.shape()[0]);
    parallel_items(execution.runtime.threads(), result.shape()[0] * plan.tiles,
                   [&](int64_t item, int thread) {
                     const int64_t expert = item / plan.tiles;
                     const int64_t tile = item % plan.tiles;
                     const int64_t end = offsets[expert + 1];
                     float* tile_gradient =
                         result.data<float>() + (expert * plan.out + tile * kTileRows) * plan.in;
                     for (int64_t row = offsets[expert]; row < end; row += kPieceRows) {
                       const int64_t rows = std::min(kPieceRows, end - row);
                       add_piece(plan, tile + 1 < plan.tiles ? whole : last,
                                 gradient.slice(row, row + rows), x.slice(row, row + rows), tile,
                                 tile_gradient, plan.areas.staged(execution.workspace, thread),
                                 plan.areas.product(execution.workspace, thread));
                     }
                   });
  }

  /// Adds gradient[:, tile]ᵀ · x of one piece to `tile_gradient` [tile, in]. If the piece does not
  /// fill its product, its rows are copied and followed by rows of zeros, which add nothing.
  static void add_piece(const Plan& plan, const PieceProducts& products, const Tensor& gradient,
                        const Tensor& x, int64_t tile, float* tile_gradient, std::byte* staged,
                        std::byte* scratch) {
    const int64_t rows = x.shape()[0];
    const int64_t product_rows = products.size(rows);
    const std::byte* a = gradient.raw();
    const std::byte* b = x.raw();
    if (product_rows != rows) {
      std::byte* const staged_x = staged + plan.gradient_bytes;
      stage(gradient, product_rows, tile * kTileRows, std::min((tile + 1) * kTileRows, plan.out),
            staged);
      stage(x, product_rows, 0, plan.in, staged_x);
      a = staged;
      b = staged_x;
    }
    products[rows].run(a + tile * kTileRows * dtype_size(gradient.dtype()), b, tile_gradient,
                       scratch);
  }

  /// Copies columns [begin, end) of the rows to the same columns in `staged`, and appends rows of
  /// zeros up to `product_rows` rows.
  static void stage(const Tensor& rows, int64_t product_rows, int64_t begin, int64_t end,
                    std::byte* staged) {
    const int64_t element_bytes = dtype_size(rows.dtype());
    const int64_t row_bytes = rows.shape()[1] * element_bytes;
    const auto bytes = static_cast<size_t>((end - begin) * element_bytes);
    for (int64_t r = 0; r < product_rows; ++r) {
      const int64_t offset = r * row_bytes + begin * element_bytes;
      if (r < rows.shape()[0]) {
        std::memcpy(staged + offset, rows.raw() + offset, bytes);
      } else {
        std::memset(staged + offset, 0, bytes);
      }
    }
  }

  bool accumulate_;
};

}  // namespace

Value grouped_linear_weight_gradient(Builder& builder, Value x, Value gradient, Value offsets,
                                     Value weight) {
  gradient = cast(builder, gradient, builder.spec(x).dtype);
  const Value main_gradient = builder.main_gradient(weight);
  if (!main_gradient) {
    return builder.apply_single(std::make_shared<GroupedLinearWeightGradient>(false),
                                {x, gradient, offsets});
  }
  builder.apply(std::make_shared<GroupedLinearWeightGradient>(true),
                {x, gradient, offsets, main_gradient});
  return main_gradient;
}

}  // namespace tessera
