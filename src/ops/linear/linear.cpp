#include "ops/linear/linear.h"

#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/elementwise_kernels.h"
#include "ops/gemm/device_gemm.h"
#include "ops/gemm/gemm.h"
#include "ops/labels.h"
#include "ops/support.h"
#include "tensor/alignment.h"

// A linear layer: y_i = x · weight_iᵀ. linear() and linears() add one operation to the program. A
// run takes one matrix product for each weight: a PackedGemm on the processor (ops/gemm/gemm.cpp),
// device_gemm() on a device. The backward pass has two operations: the gradient of the layer's
// input, a sum over the weights, and the gradient of one weight. With dy_i the outputs' gradients:
//   dx = Σ_i dy_i · weight_i
//   dweight_i = dy_iᵀ · x

namespace tessera {
namespace {

/// The base of the operations of a linear layer.
class MatrixProducts : public Operation {
 public:
  void require_runnable(Runtime& runtime, std::span<const Spec>) const override {
    require_device_gemm(runtime);
  }

 protected:
  /// Returns the bytes of workspace of one product.
  static int64_t product_bytes(const Target& target, const GemmShape& shape) {
    return target.device == Device::cpu ? PackedGemm::workspace_bytes(target, shape, shape.m)
                                        : device_gemm_workspace_bytes(target, shape);
  }
  /// Runs or enqueues one product, in the first product_bytes() of the workspace.
  static void multiply(const Execution& execution, const GemmShape& shape, const Tensor& a,
                       const Tensor& b, const Tensor& c) {
    std::byte* const workspace = execution.workspace.data();
    if (execution.stream != nullptr) {
      return device_gemm(execution, shape, a.address(), b.address(), c.address(), workspace);
    }
    PackedGemm gemm(execution.runtime, shape, shape.m);
    gemm.pack(b.raw(), workspace);
    gemm.run(a.raw(), c.raw());
  }
};

/// inputs: x [tokens, in], then weights [out_i, in]; outputs [tokens, out_i].
class Linear final : public MatrixProducts {
 public:
  explicit Linear(DType dtype) : dtype_(dtype) {}
  std::string_view name() const override { return "linear"; }

  std::string labels(std::span<const Spec> inputs) const override {
    const size_t weights = inputs.size() - 1;
    // In repeated() and tied(), @ stands for 0, 1, ... This is `~t i, ~o0 i -> t o0`, and for two
    // weights `~t i, o0 i, o1 i -> t o0, t o1; o0=o1`. One of several weights must not be partial:
    // the products of the other weights are not sums.
    return "~t i, " + repeated(weights == 1 ? "~o@ i" : "o@ i", weights) + " -> " +
           repeated("t o@", weights) + tied("o@", weights);
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() >= 2, "an input and at least one weight");
    const Spec& x = inputs[0];
    TESSERA_EXPECT(*this, x.shape.rank() == 2 && is_floating(x.dtype),
                   "the input is {}; a floating matrix is expected", text_of(x));
    TESSERA_EXPECT(*this, dtype_ == x.dtype || dtype_ == accumulation_dtype(x.dtype), "{} from {}",
                   dtype_name(dtype_), dtype_name(x.dtype));
    std::vector<Spec> outputs;
    for (const Spec& weight : inputs.subspan(1)) {
      TESSERA_EXPECT(
          *this,
          weight.shape.rank() == 2 && weight.shape[1] == x.shape[1] && weight.dtype == x.dtype,
          "a weight {} on an input {}", text_of(weight), text_of(x));
      outputs.push_back({{x.shape[0], weight.shape[0]}, dtype_});
    }
    return outputs;
  }

  /// Builds the gradients of x and of the weights. If the loss does not depend on an output, the
  /// output has no gradient, and neither has its weight.
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    std::vector<Value> result(self.inputs.size());
    std::vector<Value> gradients;
    std::vector<Value> weights;
    for (size_t i = 0; i < output_gradients.size(); ++i) {
      if (!output_gradients[i]) continue;
      gradients.push_back(output_gradients[i]);
      weights.push_back(self.inputs[i + 1]);
    }
    result[0] = linear_input_gradient(builder, gradients, weights, self.inputs[0]);
    for (size_t i = 0; i < output_gradients.size(); ++i) {
      if (!output_gradients[i]) continue;
      result[i + 1] =
          linear_weight_gradient(builder, self.inputs[0], output_gradients[i], self.inputs[i + 1]);
    }
    return result;
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    int64_t bytes = 0;
    for (size_t i = 0; i + 1 < inputs.size(); ++i) {
      // The products run one after the other, in the same workspace.
      bytes = std::max(bytes, product_bytes(target, shape(inputs, i, target.threads)));
    }
    return bytes;
  }

  void run(const Execution& execution) const override {
    const std::vector<Spec> inputs = specs_of(execution.inputs);
    for (size_t i = 0; i < execution.outputs.size(); ++i) {
      multiply(execution, shape(inputs, i, execution.runtime.threads()), execution.inputs[0],
               execution.inputs[i + 1], execution.outputs[i]);
    }
  }

 private:
  GemmShape shape(std::span<const Spec> inputs, size_t output, int threads) const {
    return {.m = inputs[0].shape[0],
            .n = inputs[output + 1].shape[0],
            .k = inputs[0].shape[1],
            .input = inputs[0].dtype,
            .output = dtype_,
            .transpose_b = true,
            .threads = threads};
  }

  DType dtype_;
};

constexpr int64_t kWideRows = 256;  // rows of a chunk whose sum is in f32; they fit into the cache

/// inputs: n gradients [tokens, out_i], then n weights [out_i, in]; output [tokens, in].
class LinearInputGradient final : public MatrixProducts {
 public:
  std::string_view name() const override { return "linear_input_gradient"; }

  std::string labels(std::span<const Spec> inputs) const override {
    const size_t pairs = inputs.size() / 2;
    // `#0 ~t o0, #1 ~o0 i -> t i`. For two weights, with the gradients as operands 0 and 1:
    // `#0 ~t o0, #2 ~o0 i + #1 ~t o1, #3 ~o1 i -> t i; o0=o1`.
    std::string labels;
    for (size_t i = 0; i < pairs; ++i) {
      labels += fmt::format("{0}#{1} ~t o{1}, #{2} ~o{1} i", i == 0 ? "" : " + ", i, pairs + i);
    }
    return labels + " -> t i" + tied("o@", pairs);
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() >= 2 && inputs.size() % 2 == 0,
                   "{} inputs; as many gradients as weights are expected", inputs.size());
    const size_t pairs = inputs.size() / 2;
    for (size_t i = 0; i < pairs; ++i) {
      const Spec &gradient = inputs[i], &weight = inputs[pairs + i];
      TESSERA_EXPECT(*this,
                     gradient.shape[1] == weight.shape[0] && gradient.dtype == weight.dtype &&
                         gradient.shape[0] == inputs[0].shape[0] &&
                         weight.shape[1] == inputs[pairs].shape[1],
                     "a gradient {} with a weight {}", text_of(gradient), text_of(weight));
    }
    return {{{inputs[0].shape[0], inputs[pairs].shape[1]}, inputs[0].dtype}};
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    if (target.device != Device::cpu) return device_workspace_bytes(target, inputs);
    const Plan plan(inputs);
    int64_t bytes = 0;
    for (const RowSection& section : row_sections(plan.rows, plan.chunk)) {
      int64_t products = 0;
      for (size_t i = 0; i < plan.pairs; ++i) {
        products += PackedGemm::workspace_bytes(
            target, shape(inputs, plan, i, section.chunk, target.threads),
            section.end - section.begin);
      }
      bytes = std::max(bytes, products);
    }
    return plan.sum_bytes() + bytes;
  }

  void run(const Execution& execution) const override {
    const std::vector<Spec> specs = specs_of(execution.inputs);
    if (execution.stream != nullptr) return run_on_device(execution, specs);
    const Plan plan(specs);
    for (const RowSection& section : row_sections(plan.rows, plan.chunk))
      run_section(execution, specs, plan, section);
  }

 private:
  /// The way in which the products are summed. A single product writes the output directly. Several
  /// products in bf16 are summed in f32, in chunks of rows that stay in the cache, and then
  /// rounded.
  struct Plan {
    explicit Plan(std::span<const Spec> inputs)
        : pairs(inputs.size() / 2),
          rows(inputs[0].shape[0]),
          columns(inputs[pairs].shape[1]),
          dtype(inputs[0].dtype),
          chunk(widens() ? std::clamp<int64_t>(rows, 1, kWideRows) : std::max<int64_t>(rows, 1)) {}
    bool widens() const { return pairs > 1 && dtype == DType::bf16; }
    DType sum_dtype() const { return widens() ? DType::f32 : dtype; }
    int64_t sum_bytes() const {
      return widens() ? aligned_bytes(chunk * columns * dtype_size(DType::f32)) : 0;
    }
    size_t pairs;
    int64_t rows;
    int64_t columns;
    DType dtype;
    int64_t chunk;  // rows
  };

  /// Returns the plan on a device, where all rows are one chunk.
  static Plan device_plan(std::span<const Spec> inputs) {
    Plan plan(inputs);
    plan.chunk = plan.rows;
    return plan;
  }

  static int64_t device_workspace_bytes(const Target& target, std::span<const Spec> inputs) {
    const Plan plan = device_plan(inputs);
    int64_t product = 0;
    for (size_t i = 0; i < plan.pairs; ++i) {
      product = std::max(product, device_gemm_workspace_bytes(
                                      target, shape(inputs, plan, i, plan.rows, target.threads)));
    }
    return plan.sum_bytes() + product;
  }

  /// Enqueues the products, and the rounding to bf16 if they are summed in f32.
  static void run_on_device(const Execution& execution, std::span<const Spec> specs) {
    const Plan plan = device_plan(specs);
    const Tensor& result = execution.outputs[0];
    std::byte* const memory = execution.workspace.data();
    void* const sum = plan.widens() ? memory : result.address();
    for (size_t i = 0; i < plan.pairs; ++i) {
      device_gemm(execution, shape(specs, plan, i, plan.rows, execution.runtime.threads()),
                  execution.inputs[i].address(), execution.inputs[plan.pairs + i].address(), sum,
                  memory + plan.sum_bytes());
    }
    if (!plan.widens()) return;
    for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
      map_device<Vendor>(ElementMap::copy, 0, reinterpret_cast<const float*>(memory),
                         result.pointer<BFloat16>(), result.elements(), *execution.stream);
    });
  }

  /// Returns the product of `rows` rows of a gradient and its weight. It is added to the products
  /// of the pairs before it.
  static GemmShape shape(std::span<const Spec> inputs, const Plan& plan, size_t pair, int64_t rows,
                         int threads) {
    return {.m = rows,
            .n = plan.columns,
            .k = inputs[pair].shape[1],
            .input = plan.dtype,
            .output = plan.sum_dtype(),
            .accumulate = pair > 0,
            .threads = threads};
  }

  /// Computes the rows of a section chunk by chunk, with weights that are packed once. There are at
  /// most two sections, the whole chunks and one shorter chunk: all chunks of one have one shape.
  static void run_section(const Execution& execution, std::span<const Spec> specs, const Plan& plan,
                          const RowSection& section) {
    std::byte* workspace = execution.workspace.data() + plan.sum_bytes();
    std::vector<PackedGemm> products;
    for (size_t i = 0; i < plan.pairs; ++i) {
      products.emplace_back(execution.runtime,
                            shape(specs, plan, i, section.chunk, execution.runtime.threads()),
                            section.end - section.begin);
      products[i].pack(execution.inputs[plan.pairs + i].raw(), workspace);
      workspace += products[i].workspace_bytes();
    }
    for (int64_t row = section.begin; row < section.end; row += section.chunk) {
      const Tensor result = execution.outputs[0].slice(row, row + section.chunk);
      std::byte* sum = plan.widens() ? execution.workspace.data() : result.raw();
      for (size_t i = 0; i < plan.pairs; ++i) {
        products[i].run(execution.inputs[i].slice(row, row + section.chunk).raw(), sum);
      }
      if (plan.widens()) round_rows(execution.runtime, sum, result);
    }
  }

  /// Rounds a chunk's sums in f32 to the result in bf16.
  static void round_rows(Runtime& runtime, const std::byte* sum, const Tensor& result) {
    const auto* from = reinterpret_cast<const float*>(sum);
    auto* to = result.data<BFloat16>();
    parallel_each(runtime.threads(), result.elements(), 16384,
                  [=](int64_t i) { to[i] = BFloat16(from[i]); });
  }
};

/// inputs: x [tokens, in], gradient [tokens, out] and, if `accumulate`, the main gradient [out,
/// in], which run() adds to. Otherwise there is one output [out, in].
class LinearWeightGradient final : public MatrixProducts {
 public:
  explicit LinearWeightGradient(bool accumulate) : accumulate_(accumulate) {}
  std::string_view name() const override { return "linear_weight_gradient"; }

  std::string labels(std::span<const Spec>) const override {
    return accumulate_ ? "~t i, ~t o -> += o i" : "~t i, ~t o -> o i";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == (accumulate_ ? 3U : 2U), "{} inputs", inputs.size());
    const Spec &x = inputs[0], &gradient = inputs[1];
    TESSERA_EXPECT(*this, x.shape[0] == gradient.shape[0] && x.dtype == gradient.dtype,
                   "an input {} with a gradient {}", text_of(x), text_of(gradient));
    const Spec result{{gradient.shape[1], x.shape[1]}, accumulation_dtype(x.dtype)};
    if (!accumulate_) return {result};
    TESSERA_EXPECT(*this, is_like(inputs[2], result), "adds {} into {}", result.shape.text(),
                   inputs[2].shape.text());
    return {};
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    return product_bytes(target,
                         shape(inputs[0].shape, inputs[1].shape, inputs[0].dtype, target.threads));
  }

  std::vector<int> updated_inputs() const override {
    return accumulate_ ? std::vector<int>{2} : std::vector<int>{};
  }

  void run(const Execution& execution) const override {
    const Tensor &x = execution.inputs[0], &gradient = execution.inputs[1];
    const Tensor& result = accumulate_ ? execution.inputs[2] : execution.outputs[0];
    multiply(execution, shape(x.shape(), gradient.shape(), x.dtype(), execution.runtime.threads()),
             gradient, x, result);
  }

 private:
  GemmShape shape(const Shape& x, const Shape& gradient, DType dtype, int threads) const {
    return {.m = gradient[1],
            .n = x[1],
            .k = x[0],
            .input = dtype,
            .output = accumulation_dtype(dtype),
            .transpose_a = true,
            .accumulate = accumulate_,
            .threads = threads};
  }

  bool accumulate_;
};

}  // namespace

Value linear(Builder& builder, Value x, Value weight, DType dtype) {
  return builder.apply_single(std::make_shared<Linear>(dtype), {x, weight});
}

Value linear(Builder& builder, Value x, Value weight) {
  return linear(builder, x, weight, builder.spec(x).dtype);
}

std::vector<Value> linears(Builder& builder, Value x, std::span<const Value> weights) {
  std::vector<Value> inputs{x};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  return builder.apply(std::make_shared<Linear>(builder.spec(x).dtype), std::move(inputs));
}

Value linear_input_gradient(Builder& builder, std::span<const Value> gradients,
                            std::span<const Value> weights, Value x) {
  std::vector<Value> inputs;
  for (const Value gradient : gradients) {
    inputs.push_back(cast(builder, gradient, builder.spec(x).dtype));
  }
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  return builder.apply_single(std::make_shared<LinearInputGradient>(), std::move(inputs));
}

Value linear_weight_gradient(Builder& builder, Value x, Value gradient, Value weight) {
  gradient = cast(builder, gradient, builder.spec(x).dtype);
  // The part of the unit's main gradient that belongs to the weight, partial where a use of the
  // weight is replicated. It is null for a value that is no parameter, and where the types do not
  // fit: then the gradient is an output of its own, which a conversion sums.
  const Value main = builder.main_gradient(weight);
  if (!main) {
    return builder.apply_single(std::make_shared<LinearWeightGradient>(false), {x, gradient});
  }
  builder.apply(std::make_shared<LinearWeightGradient>(true), {x, gradient, main});
  return main;
}

}  // namespace tessera
