#include "ops/linear/weight_gradient.h"

#include "ops/elementwise/elementwise.h"
#include "ops/gemm/device_gemm.h"
#include "ops/gemm/packed_gemm.h"
#include "ops/support.h"

namespace tessera {
namespace {

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
                   "an input {} {} with a gradient {} {}", dtype_name(x.dtype), x.shape.text(),
                   dtype_name(gradient.dtype), gradient.shape.text());
    const Spec result{{gradient.shape[1], x.shape[1]}, accumulation_dtype(x.dtype)};
    if (!accumulate_) return {result};
    TESSERA_EXPECT(*this, inputs[2].shape == result.shape && inputs[2].dtype == result.dtype,
                   "adds {} into {}", result.shape.text(), inputs[2].shape.text());
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
    if (execution.stream != nullptr) {
      return device_gemm(
          execution, shape(x.shape(), gradient.shape(), x.dtype(), execution.runtime.threads()),
          gradient.address(), x.address(), result.address(), execution.workspace.data());
    }
    PackedGemm gemm = product(execution.runtime, x.shape(), gradient.shape(), x.dtype());
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

  PackedGemm product(Runtime& runtime, const Shape& x, const Shape& gradient, DType dtype) const {
    return {runtime, shape(x, gradient, dtype, runtime.threads()), gradient[1]};
  }

  bool accumulate_;
};

}  // namespace

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
