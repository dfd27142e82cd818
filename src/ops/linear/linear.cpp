#include "ops/linear/linear.h"

#include "ops/gemm/device_gemm.h"
#include "ops/gemm/gemm.h"
#include "ops/labels.h"
#include "ops/support.h"

// A linear layer: y_i = x · weight_iᵀ. linear() and linears() add one operation to the program. It
// infers its outputs' shapes and types, names its dims for the ranks' layouts (labels()), builds
// its backward pass (linear_gradients.cpp), and runs. A run takes one matrix product for each
// weight: a PackedGemm on the processor (ops/gemm/gemm.cpp), device_gemm() on a device.

namespace tessera {
namespace {

/// inputs: x [tokens, in], then weights [out_i, in]; outputs [tokens, out_i].
class Linear final : public Operation {
 public:
  explicit Linear(DType dtype) : dtype_(dtype) {}
  std::string_view name() const override { return "linear"; }

  std::string labels(std::span<const Spec> inputs) const override {
    const size_t weights = inputs.size() - 1;
    // `~t i, ~o0 i -> t o0`, and for two weights `~t i, o0 i, o1 i -> t o0, t o1; o0=o1`. One of
    // several weights must not be partial: the products of the other weights are not sums.
    return "~t i, " + repeated(weights == 1 ? "~o# i" : "o# i", weights) + " -> " +
           repeated("t o#", weights) + tied("o#", weights);
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
      const GemmShape product = shape(inputs, i, target.threads);
      bytes = std::max(bytes, target.device == Device::cpu
                                  ? PackedGemm::workspace_bytes(target, product, inputs[0].shape[0])
                                  : device_gemm_workspace_bytes(target, product));
    }
    return bytes;
  }

  void require_runnable(Runtime& runtime, std::span<const Spec>) const override {
    require_device_gemm(runtime);
  }

  void run(const Execution& execution) const override {
    const std::vector<Spec> inputs = specs_of(execution.inputs);
    for (size_t i = 0; i < execution.outputs.size(); ++i) {
      const GemmShape product = shape(inputs, i, execution.runtime.threads());
      if (execution.stream != nullptr) {
        device_gemm(execution, product, execution.inputs[0].address(),
                    execution.inputs[i + 1].address(), execution.outputs[i].address(),
                    execution.workspace.data());
        continue;
      }
      PackedGemm gemm(execution.runtime, product, inputs[0].shape[0]);
      gemm.pack(execution.inputs[i + 1].raw(), execution.workspace.data());
      gemm.run(execution.inputs[0].raw(), execution.outputs[i].raw());
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

}  // namespace tessera
