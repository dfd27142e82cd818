#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/elementwise_kernels.h"
#include "ops/gemm/device_gemm.h"
#include "ops/gemm/gemm.h"
#include "ops/labels.h"
#include "ops/linear/linear.h"
#include "ops/row_sections.h"
#include "ops/support.h"
#include "tensor/alignment.h"

// The backward pass of a linear layer, in two operations: the gradient of the layer's input, which
// is a sum over the weights, and the gradient of one weight. With dy_i the outputs' gradients:
//   dx = Σ_i dy_i · weight_i
//   dweight_i = dy_iᵀ · x

namespace tessera {
namespace {

constexpr int64_t kWideRows = 256;  // rows of a chunk whose sum is in f32; they fit into the cache

/// inputs: n gradients [tokens, out_i], then n weights [out_i, in]; output [tokens, in].
class LinearInputGradient final : public Operation {
 public:
  std::string_view name() const override { return "linear_input_gradient"; }

  std::string labels(std::span<const Spec> inputs) const override {
    const size_t pairs = inputs.size() / 2;
    std::string labels;
    for (size_t i = 0; i < pairs; ++i) {
      labels += fmt::format("{0}#{1} ~t o{1}, #{2} ~o{1} i", i == 0 ? "" : " + ", i, pairs + i);
    }
    return labels + " -> t i" + tied("o#", pairs);
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() >= 2 && inputs.size() % 2 == 0,
                   "{} inputs; as many gradients as weights are expected", inputs.size());
    const size_t pairs = inputs.size() / 2;
    for (size_t i = 0; i < pairs; ++i) {
      const Spec& gradient = inputs[i];
      const Spec& weight = inputs[pairs + i];
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

  void require_runnable(Runtime& runtime, std::span<const Spec>) const override {
    require_device_gemm(runtime);
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

  /// Computes the rows of a section chunk by chunk, with weights that are packed once.
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
    parallel_ranges(runtime.threads(), result.elements(), 16384,
                    [=](int64_t begin, int64_t end, int) {
                      for (int64_t i = begin; i < end; ++i) to[i] = BFloat16(from[i]);
                    });
  }
};

/// inputs: x [tokens, in], gradient [tokens, out] and, if `accumulate`, the main gradient [out,
/// in], which run() adds to. Otherwise there is one output [out, in].
class LinearWeightGradient final : public Operation {
 public:
  explicit LinearWeightGradient(bool accumulate) : accumulate_(accumulate) {}
  std::string_view name() const override { return "linear_weight_gradient"; }

  std::string labels(std::span<const Spec>) const override {
    return accumulate_ ? "~t i, ~t o -> += o i" : "~t i, ~t o -> o i";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == (accumulate_ ? 3U : 2U), "{} inputs", inputs.size());
    const Spec& x = inputs[0];
    const Spec& gradient = inputs[1];
    TESSERA_EXPECT(*this, x.shape[0] == gradient.shape[0] && x.dtype == gradient.dtype,
                   "an input {} with a gradient {}", text_of(x), text_of(gradient));
    const Spec result{{gradient.shape[1], x.shape[1]}, accumulation_dtype(x.dtype)};
    if (!accumulate_) return {result};
    TESSERA_EXPECT(*this, is_like(inputs[2], result), "adds {} into {}", result.shape.text(),
                   inputs[2].shape.text());
    return {};
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    const Shape& gradient = inputs[1].shape;
    const GemmShape product = shape(inputs[0].shape, gradient, inputs[0].dtype, target.threads);
    return target.device == Device::cpu ? PackedGemm::workspace_bytes(target, product, gradient[1])
                                        : device_gemm_workspace_bytes(target, product);
  }

  std::vector<int> updated_inputs() const override {
    return accumulate_ ? std::vector<int>{2} : std::vector<int>{};
  }

  void require_runnable(Runtime& runtime, std::span<const Spec>) const override {
    require_device_gemm(runtime);
  }

  void run(const Execution& execution) const override {
    const Tensor& x = execution.inputs[0];
    const Tensor& gradient = execution.inputs[1];
    const Tensor& result = accumulate_ ? execution.inputs[2] : execution.outputs[0];
    const GemmShape product =
        shape(x.shape(), gradient.shape(), x.dtype(), execution.runtime.threads());
    if (execution.stream != nullptr) {
      return device_gemm(execution, product, gradient.address(), x.address(), result.address(),
                         execution.workspace.data());
    }
    PackedGemm gemm(execution.runtime, product, gradient.shape()[1]);
    gemm.pack(x.raw(), execution.workspace.data());
    gemm.run(gradient.raw(), result.raw());
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
  const Value main = builder.main_gradient(weight);
  if (!main) {
    return builder.apply_single(std::make_shared<LinearWeightGradient>(false), {x, gradient});
  }
  builder.apply(std::make_shared<LinearWeightGradient>(true), {x, gradient, main});
  return main;
}

}  // namespace tessera
