#include "ops/router/processor_rows.h"
#include "ops/router/router.h"
#include "ops/router/router_kernels.h"

namespace tessera {
namespace {

/// inputs: probabilities and their gradient; output: the logits' gradient. All [tokens, experts].
class RouterSoftmaxGradient final : public Operation {
 public:
  std::string_view name() const override { return "router_softmax_gradient"; }

  std::string labels(std::span<const Spec>) const override { return "n E!, ~n E! -> n E"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(
        *this, inputs.size() == 2 && is_router_matrix(inputs[0]) && is_like(inputs[1], inputs[0]),
        "two f32 or f64 matrices of one shape are expected");
    return {inputs[0]};
  }
  int in_place_input(int) const override { return 1; }

  void run(const Execution& execution) const override {
    const Tensor& result = execution.outputs[0];
    const int64_t experts = result.shape()[1];
    if (execution.stream != nullptr) {
      return for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
        router_softmax_gradient_device<Vendor>(
            result.shape()[0], experts, execution.inputs[0].pointer<float>(),
            execution.inputs[1].pointer<float>(), result.pointer<float>(), *execution.stream);
      });
    }
    dispatch_wide(result.dtype(), [&]<typename T>(T) {
      const T* probabilities = execution.inputs[0].data<T>();
      const T* probabilities_gradient = execution.inputs[1].data<T>();
      T* logits_gradient = result.data<T>();
      for_each_token(execution, result.shape()[0], experts, [=](int64_t t) {
        softmax_row_gradient(probabilities + t * experts, probabilities_gradient + t * experts,
                             experts, logits_gradient + t * experts);
      });
    });
  }
};

/// input: logits [tokens, experts]; output: the probabilities, which may be in the same memory.
class RouterSoftmax final : public Operation {
 public:
  std::string_view name() const override { return "router_softmax"; }

  std::string labels(std::span<const Spec>) const override { return "n E! -> n E"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 1 && is_router_matrix(inputs[0]),
                   "one f32 or f64 matrix [tokens, experts] is expected");
    return {inputs[0]};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    if (!output_gradients[0]) return {Value{}};
    return {builder.apply_single(std::make_shared<RouterSoftmaxGradient>(),
                                 {self.outputs[0], output_gradients[0]})};
  }

  int in_place_input(int) const override { return 0; }

  void run(const Execution& execution) const override {
    const Tensor& result = execution.outputs[0];
    const int64_t experts = result.shape()[1];
    if (execution.stream != nullptr) {
      return for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
        router_softmax_device<Vendor>(result.shape()[0], experts,
                                      execution.inputs[0].pointer<float>(), result.pointer<float>(),
                                      *execution.stream);
      });
    }
    dispatch_exponential(execution.runtime, result.dtype(), [&]<typename T>(T, auto exponential) {
      const T* logits = execution.inputs[0].data<T>();
      T* probabilities = result.data<T>();
      for_each_token(execution, result.shape()[0], 4 * experts, [=](int64_t t) {
        softmax_row(logits + t * experts, experts, probabilities + t * experts, exponential);
      });
    });
  }
};

}  // namespace

Value router_softmax(Builder& builder, Value logits) {
  return builder.apply_single(std::make_shared<RouterSoftmax>(), {logits});
}

}  // namespace tessera
