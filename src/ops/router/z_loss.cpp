#include "ops/router/losses.h"
#include "ops/router/processor_rows.h"
#include "ops/router/router_kernels.h"

namespace tessera {
namespace {

/// inputs: logits [tokens, experts], the gradient of the loss [1]; output: the gradient of the
/// logits.
class RouterZLossGradient final : public Operation {
 public:
  explicit RouterZLossGradient(double coefficient) : coefficient_(coefficient) {}
  std::string_view name() const override { return "router_z_loss_gradient"; }

  std::string labels(std::span<const Spec>) const override { return "n E!, ~u! -> n E"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this,
                   inputs.size() == 2 && is_router_matrix(inputs[0]) &&
                       is_like(inputs[1], {{1}, inputs[0].dtype}),
                   "logits and the gradient of a scalar are expected");
    return {inputs[0]};
  }

  void run(const Execution& execution) const override {
    const Tensor& result = execution.outputs[0];
    const int64_t experts = result.shape()[1];
    if (execution.stream != nullptr) {
      return for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
        router_z_loss_gradient_device<Vendor>(
            result.shape()[0], experts, coefficient_, execution.inputs[0].pointer<float>(),
            execution.inputs[1].pointer<float>(), result.pointer<float>(), *execution.stream);
      });
    }
    dispatch_exponential(execution.runtime, result.dtype(), [&]<typename T>(T, auto exponential) {
      const T* logits = execution.inputs[0].data<T>();
      const T factor = static_cast<T>(2 * coefficient_) * execution.inputs[1].data<T>()[0];
      T* gradient = result.data<T>();
      for_each_token(execution, result.shape()[0], 4 * experts, [=](int64_t t) {
        const T* row = logits + t * experts;
        const T z = log_sum_exp(row, experts, exponential);
        T* row_gradient = gradient + t * experts;
#pragma omp simd
        for (int64_t e = 0; e < experts; ++e) {
          row_gradient[e] = factor * z * exponential(row[e] - z);
        }
      });
    });
  }

 private:
  double coefficient_;
};

/// input: logits [tokens, experts]; output [1].
class RouterZLoss final : public Operation {
 public:
  explicit RouterZLoss(double coefficient) : coefficient_(coefficient) {}
  std::string_view name() const override { return "router_z_loss"; }

  std::string labels(std::span<const Spec>) const override { return "n E! -> u"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 1 && is_router_matrix(inputs[0]),
                   "one f32 or f64 matrix [tokens, experts] is expected");
    return {{{1}, inputs[0].dtype}};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    if (!output_gradients[0]) return {Value{}};
    return {builder.apply_single(std::make_shared<RouterZLossGradient>(coefficient_),
                                 {self.inputs[0], output_gradients[0]})};
  }

  int64_t workspace_bytes(const Target&, std::span<const Spec> inputs) const override {
    return inputs[0].shape[0] * dtype_size(inputs[0].dtype);
  }

  /// Writes loss = coefficient · Σ_t z_t². The squares are written to the workspace and then summed
  /// in order, in f64, so that the sum does not depend on the number of threads.
  void run(const Execution& execution) const override {
    const int64_t tokens = execution.inputs[0].shape()[0];
    const int64_t experts = execution.inputs[0].shape()[1];
    if (execution.stream != nullptr) {
      return for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
        router_z_loss_device<Vendor>(tokens, experts, coefficient_,
                                     execution.inputs[0].pointer<float>(),
                                     reinterpret_cast<float*>(execution.workspace.data()),
                                     execution.outputs[0].pointer<float>(), *execution.stream);
      });
    }
    const DType dtype = execution.inputs[0].dtype();
    dispatch_exponential(execution.runtime, dtype, [&]<typename T>(T, auto exponential) {
      const T* logits = execution.inputs[0].data<T>();
      T* squares = reinterpret_cast<T*>(execution.workspace.data());  // [tokens]
      for_each_token(execution, tokens, 4 * experts, [=](int64_t t) {
        const T z = log_sum_exp(logits + t * experts, experts, exponential);
        squares[t] = z * z;
      });
      double sum = 0;
      for (int64_t t = 0; t < tokens; ++t) sum += static_cast<double>(squares[t]);
      execution.outputs[0].data<T>()[0] = static_cast<T>(coefficient_ * sum);
    });
  }

 private:
  double coefficient_;
};

}  // namespace

Value router_z_loss(Builder& builder, Value logits, double coefficient) {
  return builder.apply_single(std::make_shared<RouterZLoss>(coefficient), {logits});
}

}  // namespace tessera
