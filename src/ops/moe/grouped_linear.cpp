#include "ops/moe/grouped_linear.h"

#include <cstring>

#include "ops/labels.h"
#include "ops/moe/device_grouped.h"
#include "ops/moe/grouped_linear_plain.h"
#include "ops/moe/row_pieces.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// inputs: x [rows, in], weights [experts, out_i, in], offsets i32 [experts + 1]; outputs
/// [rows, out_i]. On a device there is a grouped product per weight (ops/moe/device_grouped.h). On
/// the processor the fast kernel multiplies pieces of the experts' rows (ops/moe/row_pieces.h).
class GroupedLinear final : public Operation {
 public:
  std::string_view name() const override { return "grouped_linear"; }

  std::string labels(std::span<const Spec> inputs) const override {
    const size_t weights = inputs.size() - 2;
    // A weight may be partial only if it is the only one. If one of several were partial, the
    // products of the other weights would not be addends of a sum.
    return "~(E r) i, " + repeated(weights == 1 ? "~E o@ i" : "E o@ i", weights) + ", (E r) -> " +
           repeated("(E r) o@", weights) + tied("o@", weights);
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() >= 3, "an input, weights and offsets are expected");
    const Spec& x = inputs.front();
    const Spec& offsets = inputs.back();
    TESSERA_EXPECT(*this, x.shape.rank() == 2 && is_floating(x.dtype),
                   "the input is {}; a floating matrix is expected", text_of(x));
    std::vector<Spec> outputs;
    for (const Spec& weight : inputs.subspan(1, inputs.size() - 2)) {
      TESSERA_EXPECT(
          *this,
          weight.shape.rank() == 3 && weight.shape[2] == x.shape[1] && weight.dtype == x.dtype,
          "a weight {} on an input {}", text_of(weight), text_of(x));
      TESSERA_EXPECT(*this, is_like(offsets, {{weight.shape[0] + 1}, DType::i32}),
                     "offsets {} for {} experts", text_of(offsets), weight.shape[0]);
      outputs.push_back({{x.shape[0], weight.shape[1]}, x.dtype});
    }
    return outputs;
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    const Value x = self.inputs.front();
    const Value offsets = self.inputs.back();
    std::vector<Value> result(self.inputs.size());
    std::vector<Value> gradients;
    std::vector<Value> weights;
    for (size_t i = 0; i < output_gradients.size(); ++i) {
      if (!output_gradients[i]) continue;
      gradients.push_back(output_gradients[i]);
      weights.push_back(self.inputs[i + 1]);
    }
    if (gradients.empty()) return result;
    result[0] = grouped_linear_input_gradient(builder, gradients, weights, offsets, x);
    for (size_t i = 0; i < output_gradients.size(); ++i) {
      if (!output_gradients[i]) continue;
      result[i + 1] = grouped_linear_weight_gradient(builder, x, output_gradients[i], offsets,
                                                     self.inputs[i + 1]);
    }
    return result;
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    const Spec& x = inputs.front();
    if (target.device != Device::cpu && has_device_grouped(target.device, x.dtype)) {
      int64_t bytes = 0;
      for (const Spec& weight : weights_of(inputs)) {
        bytes = std::max(bytes, device_grouped_workspace_bytes(target, name(),
                                                               device_shape(x.shape[0], weight)));
      }
      return bytes;
    }
    if (use_plain(target, x.dtype) || x.shape[0] == 0) return 0;
    return workspace(target, inputs).bytes(target.threads);
  }

  void require_runnable(Runtime& runtime, std::span<const Spec> inputs) const override {
    for (const Spec& weight : weights_of(inputs)) {
      require_device_grouped(runtime, name(), device_shape(inputs.front().shape[0], weight));
    }
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    const Tensor& x = execution.inputs.front();
    if (use_plain(execution.runtime.target(), x.dtype())) {
      for (size_t i = 0; i < execution.outputs.size(); ++i) {
        dispatch_floating(x.dtype(), [&]<typename T>(T) {
          grouped_linear_plain<T>(execution.runtime, x, execution.inputs[i + 1],
                                  execution.inputs.back(), execution.outputs[i]);
        });
      }
    } else if (x.shape()[0] > 0) {
      run_fast(execution);
    }
  }

 private:
  static std::span<const Spec> weights_of(std::span<const Spec> inputs) {
    return inputs.subspan(1, inputs.size() - 2);
  }

  static GroupedShape device_shape(int64_t rows, const Spec& weight) {
    return {.kind = GroupedKind::forward,
            .groups = weight.shape[0],
            .rows = rows,
            .in = weight.shape[2],
            .out = weight.shape[1],
            .input = weight.dtype,
            .output = weight.dtype};
  }

  void run_on_device(const Execution& execution) const {
    const Tensor& x = execution.inputs.front();
    const Tensor& offsets = execution.inputs.back();
    if (!has_device_grouped(execution.stream->device(), x.dtype())) {
      return run_by_processor(*this, execution);
    }
    for (size_t i = 0; i < execution.outputs.size(); ++i) {
      const Tensor& weight = execution.inputs[i + 1];
      device_grouped(execution, name(), device_shape(x.shape()[0], spec_of(weight)),
                     {.rows = x.address(),
                      .second = weight.address(),
                      .offsets = offsets.pointer<int32_t>(),
                      .result = execution.outputs[i].address()},
                     execution.workspace.data());
    }
  }

  /// Returns the product of a piece, without its number of rows, which varies.
  static GemmShape product(const Spec& weight) {
    return {.n = weight.shape[1],
            .k = weight.shape[2],
            .input = weight.dtype,
            .output = weight.dtype,
            .transpose_b = true};
  }

  /// Returns the layout of the workspace, with room for the widest result and the largest product.
  static PieceWorkspace workspace(const Target& target, std::span<const Spec> inputs) {
    const int64_t rows = inputs.front().shape[0];
    int64_t out = 0;
    int64_t product_bytes = 0;
    for (const Spec& weight : weights_of(inputs)) {
      out = std::max(out, weight.shape[1]);
      product_bytes = std::max(product_bytes, PieceProducts::workspace_bytes(
                                                  target, product(weight), &GemmShape::m, rows));
    }
    return {piece_bound(rows, inputs[1].shape[0]), kPieceRows * out * dtype_size(inputs[0].dtype),
            product_bytes};
  }

  /// Multiplies several pieces at a time, one per thread, each by all weights.
  static void run_fast(const Execution& execution) {
    const Tensor& x = execution.inputs.front();
    const std::vector<Spec> inputs = specs_of(execution.inputs);
    std::vector<PieceProducts> products;
    for (const Spec& weight : weights_of(inputs)) {
      products.emplace_back(execution.runtime, product(weight), &GemmShape::m, x.shape()[0]);
    }
    const PieceWorkspace areas = workspace(execution.runtime.target(), inputs);
    const auto pieces =
        cut_rows(execution.inputs.back().values<int32_t>(), areas.pieces(execution.workspace));
    parallel_items(execution.runtime.threads(), std::ssize(pieces), [&](int64_t item, int thread) {
      for (size_t i = 0; i < products.size(); ++i) {
        multiply(x, execution.inputs[i + 1], execution.outputs[i],
                 pieces[static_cast<size_t>(item)], products[i],
                 areas.staged(execution.workspace, thread),
                 areas.product(execution.workspace, thread));
      }
    });
  }

  /// Multiplies one piece by one weight. If the piece fills its product, the result is written in
  /// place. Otherwise the product also covers rows after the piece or, at the end of x, before it.
  /// It is then written to `staged`, and the rows of the piece are copied to y.
  static void multiply(const Tensor& x, const Tensor& weight, const Tensor& y,
                       const RowPiece& piece, const PieceProducts& products, std::byte* staged,
                       std::byte* scratch) {
    const int64_t product_rows = products.size(piece.rows);
    const int64_t first_row = std::min<int64_t>(piece.row, x.shape()[0] - product_rows);
    const int64_t row_bytes = y.shape()[1] * dtype_size(y.dtype());
    std::byte* result = y.raw() + piece.row * row_bytes;
    const bool in_place = product_rows == piece.rows;
    products[piece.rows].run(x.slice(first_row, first_row + product_rows).raw(),
                             weight.slice(piece.expert, piece.expert + 1).raw(),
                             in_place ? result : staged, scratch);
    if (!in_place) {
      std::memcpy(result, staged + (piece.row - first_row) * row_bytes,
                  static_cast<size_t>(piece.rows * row_bytes));
    }
  }
};

}  // namespace

std::vector<Value> grouped_linear(Builder& builder, Value x, std::span<const Value> weights,
                                  Value offsets) {
  std::vector<Value> inputs{x};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  inputs.push_back(offsets);
  return builder.apply(std::make_shared<GroupedLinear>(), std::move(inputs));
}

}  // namespace tessera
