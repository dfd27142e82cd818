#include "ops/cca/grouped_convolution.h"

#include <algorithm>

#include "ops/elementwise/elementwise.h"
#include "ops/gemm/device_gemm.h"
#include "ops/gemm/gemm.h"
#include "ops/support.h"

namespace tessera {
namespace {

// The convolution and its two gradients are one matrix product per head (HeadProducts). They differ
// in the sizes of the products and in the operands. The operands are stored for all heads together:
// a head's row is a part of a row of all heads, so there are gaps between a head's rows.

/// The sizes of a convolution. The taps are [tokens, heads · in], the result [tokens, heads · out].
struct HeadSizes {
  int64_t tokens;
  int64_t heads;
  int64_t in;   // taps of a head
  int64_t out;  // channels of a head's result
  DType dtype;

  double flops() const {
    return 2.0 * static_cast<double>(tokens * heads) * static_cast<double>(in * out);
  }
};

/// An operand of the products. Each head has a part of it.
struct HeadOperand {
  const Tensor& tensor;
  int64_t step;  // elements from one head's part to the next

  /// Returns the address of element `offset` of a head's part.
  void* part(int64_t head, int64_t offset = 0) const {
    return static_cast<std::byte*>(tensor.address()) +
           (head * step + offset) * dtype_size(tensor.dtype());
  }
};

/// An operation that computes a product C = A B for each head. On the processor a thread takes one
/// head and some rows of C at a time, so the result does not depend on the threads.
class HeadProducts : public Operation {
 public:
  explicit HeadProducts(int64_t heads) : heads_(heads) {}

  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    return {.flops = sizes(inputs).flops(),
            .bytes = operand_bytes(inputs, outputs, updated_inputs())};
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    const GemmShape shape = head_product(sizes(inputs));
    if (target.device != Device::cpu) {
      return device_gemm_workspace_bytes(target, with_rows(shape, shape.m, target.threads));
    }
    return target.threads * thread_bytes(target, shape);
  }

  void require_runnable(Runtime& runtime, std::span<const Spec>) const override {
    require_device_gemm(runtime);
  }

  void run(const Execution& execution) const override {
    const std::span<const Tensor> inputs = execution.inputs;
    const GemmShape shape = head_product(sizes(specs_of(inputs)));
    // Only the weight's gradient transposes A. There A is input 1, the gradient; B is the taps.
    const bool is_weight_gradient = shape.transpose_a;
    const int64_t weight_step = shape.n * (is_weight_gradient ? shape.m : shape.k);
    const HeadOperand a{inputs[is_weight_gradient ? 1 : 0], is_weight_gradient ? shape.m : shape.k};
    const HeadOperand b{inputs[is_weight_gradient ? 0 : 1],
                        is_weight_gradient ? shape.n : weight_step};
    const HeadOperand c{execution.outputs.empty() ? inputs[2] : execution.outputs[0],
                        is_weight_gradient ? weight_step : shape.n};
    if (execution.stream == nullptr) {
      for (const RowSection& section : sections(shape)) {
        run_section(execution, shape, section, a, b, c);
      }
      return;
    }
    for (int64_t head = 0; head < heads_; ++head) {
      device_gemm(execution, with_rows(shape, shape.m, execution.runtime.threads()), a.part(head),
                  b.part(head), c.part(head), execution.workspace.data());
    }
  }

 protected:
  /// Returns the sizes of checked inputs.
  virtual HeadSizes sizes(std::span<const Spec> inputs) const = 0;
  virtual GemmShape head_product(const HeadSizes& sizes) const = 0;

  HeadSizes sizes_of(const Shape& taps, int64_t columns, DType dtype) const {
    return {taps[0], heads_, taps[1] / heads_, columns / heads_, dtype};
  }

  int64_t heads_;

 private:
  /// Returns the rows of C as sections of chunks (row_sections()). oneDNN may need an f32 copy
  /// of a result with gaps between its rows, so chunks are small.
  static std::vector<RowSection> sections(const GemmShape& shape) {
    constexpr int64_t kTokens = 1024, kWeightRows = 64;
    return row_sections(shape.m, shape.transpose_a ? kWeightRows : kTokens);
  }

  /// Returns the product of `rows` rows of C. A single row has no gaps: a leading dim of 0 says so.
  static GemmShape with_rows(GemmShape shape, int64_t rows, int threads) {
    shape.m = rows;
    shape.threads = threads;
    if (rows == 1 && !shape.transpose_a) shape.lda = 0;
    if (rows == 1) shape.ldc = 0;
    return shape;
  }

  /// Returns the workspace bytes of a thread, for the largest section.
  static int64_t thread_bytes(const Target& target, const GemmShape& shape) {
    int64_t bytes = 0;
    for (const RowSection& section : sections(shape)) {
      const int64_t rows = section.chunk;
      bytes = std::max(bytes, PackedGemm::workspace_bytes(target, with_rows(shape, rows, 1), rows));
    }
    return bytes;
  }

  void run_section(const Execution& execution, const GemmShape& shape, const RowSection& section,
                   const HeadOperand& a, const HeadOperand& b, const HeadOperand& c) const {
    Runtime& runtime = execution.runtime;
    const int64_t rows = section.chunk;
    const PackedGemm product(runtime, with_rows(shape, rows, 1), rows);
    const int64_t bytes = thread_bytes(runtime.target(), shape);
    const int64_t chunks = (section.end - section.begin) / rows;
    const int64_t row_step_a = shape.transpose_a ? 1 : shape.lda;
    const int64_t row_step_c = shape.ldc > 0 ? shape.ldc : shape.n;
    parallel_items(runtime.threads(), heads_ * chunks, [&](int64_t item, int thread) {
      const int64_t head = item / chunks;
      const int64_t row = section.begin + item % chunks * rows;
      PackedGemm packed = product;
      packed.pack(b.part(head), execution.workspace.data() + thread * bytes);
      packed.run(a.part(head, row * row_step_a), c.part(head, row * row_step_c));
    });
  }
};

/// The gradient of the weight. inputs: taps [tokens, heads · in] and the gradient of the result
/// [tokens, heads · out]. If `accumulate`, run() adds to a third input, the main gradient [heads ·
/// out, in / 2, 2]. Otherwise the output is a gradient of that shape.
class GroupedConvolutionWeightGradient final : public HeadProducts {
 public:
  GroupedConvolutionWeightGradient(int64_t heads, bool accumulate)
      : HeadProducts(heads), accumulate_(accumulate) {}
  std::string_view name() const override { return "grouped_convolution_weight_gradient"; }

  std::string labels(std::span<const Spec>) const override {
    return std::string("~t (h i! k!), ~t (h o!) -> ") + (accumulate_ ? "+= " : "") + "(h o) i k";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == (accumulate_ ? 3U : 2U), "{} inputs", inputs.size());
    const HeadSizes size = sizes(inputs);
    TESSERA_EXPECT(*this, inputs[1].shape[0] == size.tokens && inputs[1].dtype == size.dtype,
                   "taps {} {} with a gradient {}", dtype_name(size.dtype), inputs[0].shape.text(),
                   text_of(inputs[1]));
    const Spec result{{size.heads * size.out, size.in / 2, 2}, accumulation_dtype(size.dtype)};
    if (!accumulate_) return {result};
    TESSERA_EXPECT(*this, is_like(inputs[2], result), "adds {} into {}", result.shape.text(),
                   inputs[2].shape.text());
    return {};
  }
  std::vector<int> updated_inputs() const override {
    return accumulate_ ? std::vector<int>{2} : std::vector<int>{};
  }

 protected:
  HeadSizes sizes(std::span<const Spec> inputs) const override {
    return sizes_of(inputs[0].shape, inputs[1].shape[1], inputs[0].dtype);
  }
  GemmShape head_product(const HeadSizes& size) const override {
    return {.m = size.out,
            .n = size.in,
            .k = size.tokens,
            .input = size.dtype,
            .output = accumulation_dtype(size.dtype),
            .transpose_a = true,
            .accumulate = accumulate_,
            .lda = size.heads * size.out,
            .ldb = size.heads * size.in};
  }

 private:
  bool accumulate_;
};

/// inputs: the gradient of the result [tokens, heads · out], weight [heads · out, in / 2, 2].
/// output: the gradient of the taps [tokens, heads · in].
class GroupedConvolutionInputGradient final : public HeadProducts {
 public:
  using HeadProducts::HeadProducts;
  std::string_view name() const override { return "grouped_convolution_input_gradient"; }

  std::string labels(std::span<const Spec>) const override {
    return "~t (h o!), ~(h o!) i! k! -> t (h i k)";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    const Spec &gradient = inputs[0], &weight = inputs[1];
    TESSERA_EXPECT(*this, gradient.shape[1] == weight.shape[0] && gradient.dtype == weight.dtype,
                   "a gradient {} with a weight {}", text_of(gradient), text_of(weight));
    const HeadSizes size = sizes(inputs);
    return {{{size.tokens, size.heads * size.in}, gradient.dtype}};
  }

 protected:
  HeadSizes sizes(std::span<const Spec> inputs) const override {
    const Shape& weight = inputs[1].shape;
    return {inputs[0].shape[0], heads_, weight[1] * weight[2], weight[0] / heads_, inputs[0].dtype};
  }
  GemmShape head_product(const HeadSizes& size) const override {
    return {.m = size.tokens,
            .n = size.in,
            .k = size.out,
            .input = size.dtype,
            .output = size.dtype,
            .lda = size.heads * size.out,
            .ldc = size.heads * size.in};
  }
};

/// inputs: taps [tokens, heads · in], weight [heads · out, in / 2, 2]; output [tokens, heads ·
/// out].
class GroupedConvolution final : public HeadProducts {
 public:
  using HeadProducts::HeadProducts;
  std::string_view name() const override { return "grouped_convolution"; }

  std::string labels(std::span<const Spec>) const override {
    return "~t (h i! k!), ~(h o!) i! k! -> t (h o)";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 2, "{} inputs", inputs.size());
    const Spec &taps = inputs[0], &weight = inputs[1];
    TESSERA_EXPECT(*this, taps.shape.rank() == 2 && is_floating(taps.dtype),
                   "the taps are {}; a floating matrix is expected", text_of(taps));
    TESSERA_EXPECT(*this,
                   weight.shape.rank() == 3 && weight.shape[2] == 2 && weight.dtype == taps.dtype,
                   "a weight {} on taps {}; [heads * outputs, inputs, 2] is expected",
                   text_of(weight), text_of(taps));
    TESSERA_EXPECT(*this,
                   heads_ > 0 && weight.shape[0] % heads_ == 0 &&
                       taps.shape[1] == heads_ * weight.shape[1] * 2,
                   "taps {} and a weight {} of {} heads", taps.shape.text(), weight.shape.text(),
                   heads_);
    return {{{taps.shape[0], weight.shape[0]}, taps.dtype}};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    const Value taps = self.inputs[0], weight = self.inputs[1];
    const Value result_gradient = cast(builder, output_gradients[0], builder.spec(taps).dtype);
    const Value taps_gradient = builder.apply_single(
        std::make_shared<GroupedConvolutionInputGradient>(heads_), {result_gradient, weight});
    const auto weight_gradient = [&](bool accumulate) {
      return std::make_shared<GroupedConvolutionWeightGradient>(heads_, accumulate);
    };
    const Value main_gradient = builder.main_gradient(weight);
    if (!main_gradient) {
      return {taps_gradient, builder.apply_single(weight_gradient(false), {taps, result_gradient})};
    }
    builder.apply(weight_gradient(true), {taps, result_gradient, main_gradient});
    return {taps_gradient, main_gradient};
  }

 protected:
  HeadSizes sizes(std::span<const Spec> inputs) const override {
    return sizes_of(inputs[0].shape, inputs[1].shape[0], inputs[0].dtype);
  }
  GemmShape head_product(const HeadSizes& size) const override {
    return {.m = size.tokens,
            .n = size.out,
            .k = size.in,
            .input = size.dtype,
            .output = size.dtype,
            .transpose_b = true,
            .lda = size.heads * size.in,
            .ldc = size.heads * size.out};
  }
};

}  // namespace

Value grouped_convolution(Builder& builder, Value taps, Value weight, int64_t heads) {
  return builder.apply_single(std::make_shared<GroupedConvolution>(heads), {taps, weight});
}

}  // namespace tessera
