#include "ops/moe/reduce_experts.h"

#include "ops/elementwise/elementwise.h"
#include "ops/moe/routed_types.h"
#include "ops/moe/token_rows.h"
#include "ops/moe/token_rows_kernels.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// Writes the gradient of one choice's row, row_gradient = weight · output_gradient, and returns
/// the gradient of its weight, Σ_h row_h · output_gradient_h. `row` and `row_gradient` may be the
/// same memory.
template <typename T>
Compute<T> choice_gradient(const T* row, const T* output_gradient, Compute<T> weight, int64_t width,
                           T* row_gradient) {
  using Wide = Compute<T>;
  Wide dot = 0;
#pragma omp simd reduction(+ : dot)
  for (int64_t h = 0; h < width; ++h) {
    dot += static_cast<Wide>(row[h]) * static_cast<Wide>(output_gradient[h]);
  }
  // A separate loop without a simd pragma: with it the compiler does not vectorise stores of bf16.
  for (int64_t h = 0; h < width; ++h) {
    row_gradient[h] = static_cast<T>(weight * static_cast<Wide>(output_gradient[h]));
  }
  return dot;
}

/// inputs: expert_output [rows, hidden], weights [tokens, k], input_indices i32 [rows],
/// output_indices i32 [tokens, k], the gradient of the result [tokens, hidden]; outputs: the
/// gradients of expert_output and of the weights.
class ReduceExpertsGradient final : public Operation {
 public:
  std::string_view name() const override { return "reduce_experts_gradient"; }

  std::string labels(std::span<const Spec>) const override {
    return "r! c, n! k!, r!, n! k!, ~n! c -> r c, n k";
  }
  HandRule hand_rule() const override {
    return routed_rule(
        {Routed::rows, Routed::tokens, Routed::rows, Routed::choices, Routed::tokens},
        {Routed::rows, Routed::tokens});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this,
                   inputs.size() == 5 && inputs[4].dtype == inputs[0].dtype &&
                       inputs[4].shape == Shape({inputs[1].shape[0], inputs[0].shape[1]}),
                   "the operands of reduce_experts and its gradient are expected");
    return {inputs[0], inputs[1]};
  }
  /// Lets the first output overwrite the rows: each is read before it is written, and belongs to
  /// one token.
  int in_place_input(int output) const override { return output == 0 ? 0 : -1; }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) {
      on_device(execution, [&](auto vendor, auto type) {
        sum_rows_gradient_device<decltype(vendor)>(device_arguments<decltype(type)>(execution),
                                                   *execution.stream);
      });
      return;
    }
    dispatch_floating(execution.inputs[0].dtype(),
                      [&](auto type) { propagate<decltype(type)>(execution); });
  }

 private:
  template <typename T>
  static RowSumGradient<T> device_arguments(const Execution& execution) {
    using Wide = Compute<T>;
    const std::span<const Tensor> inputs = execution.inputs;
    RowSumGradient<T> gradient{};
    gradient.tokens = inputs[1].shape()[0];
    gradient.k = inputs[1].shape()[1];
    gradient.width = inputs[0].shape()[1];
    gradient.rows = inputs[0].pointer<T>();
    gradient.weights = inputs[1].pointer<Wide>();
    gradient.row_of_choice = inputs[3].pointer<int32_t>();
    gradient.result_gradient = inputs[4].pointer<T>();
    gradient.rows_gradient = execution.outputs[0].pointer<T>();
    gradient.weights_gradient = execution.outputs[1].pointer<Wide>();
    return gradient;
  }

  template <typename T>
  static void propagate(const Execution& execution) {
    using Wide = Compute<T>;
    const int64_t k = execution.inputs[1].shape()[1];
    const int64_t width = execution.inputs[0].shape()[1];
    const T* rows = execution.inputs[0].data<T>();
    const Wide* weights = execution.inputs[1].data<Wide>();
    const int32_t* row_of_choice = execution.inputs[3].data<int32_t>();
    const T* result_gradient = execution.inputs[4].data<T>();
    T* rows_gradient = execution.outputs[0].data<T>();
    Wide* weights_gradient = execution.outputs[1].data<Wide>();
    parallel_ranges(execution.runtime.threads(), execution.inputs[1].shape()[0],
                    row_grain(k * width), [=](int64_t begin, int64_t end, int) {
                      for (int64_t i = begin * k; i < end * k; ++i) {
                        weights_gradient[i] = 0;
                        if (row_of_choice[i] < 0) continue;
                        const int64_t at = row_of_choice[i] * width;
                        weights_gradient[i] =
                            choice_gradient(rows + at, result_gradient + i / k * width, weights[i],
                                            width, rows_gradient + at);
                      }
                    });
  }
};

/// inputs: expert_output [rows, hidden], weights [tokens, k], input_indices i32 [rows], whose type
/// shows that the rows and the choices are of one exchange, output_indices i32 [tokens, k]; output
/// [tokens, hidden].
class ReduceExperts final : public Operation {
 public:
  std::string_view name() const override { return "reduce_experts"; }

  std::string labels(std::span<const Spec>) const override {
    return "~r! c, n! k!, r!, n! k! -> n c";
  }
  HandRule hand_rule() const override {
    return routed_rule({Routed::rows, Routed::tokens, Routed::rows, Routed::choices},
                       {Routed::tokens});
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this,
                   inputs.size() == 4 && is_floating(inputs[0].dtype) &&
                       inputs[0].shape.rank() == 2 &&
                       inputs[1].dtype == accumulation_dtype(inputs[0].dtype),
                   "routed rows, weights in their accumulation type and indices are expected");
    TESSERA_EXPECT(*this,
                   inputs[2].dtype == DType::i32 && inputs[3].dtype == DType::i32 &&
                       inputs[3].shape == inputs[1].shape &&
                       inputs[2].shape == Shape({inputs[0].shape[0]}),
                   "weights {} and indices {} and {} for routed rows {}", inputs[1].shape.text(),
                   inputs[2].shape.text(), inputs[3].shape.text(), inputs[0].shape.text());
    return {{{inputs[1].shape[0], inputs[0].shape[1]}, inputs[0].dtype}};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    std::vector<Value> result(self.inputs.size());
    if (!output_gradients[0]) return result;
    std::vector<Value> inputs = self.inputs;
    inputs.push_back(cast(builder, output_gradients[0], builder.spec(self.inputs[0]).dtype));
    const std::vector<Value> gradients =
        builder.apply(std::make_shared<ReduceExpertsGradient>(), std::move(inputs));
    result[0] = gradients[0];
    result[1] = gradients[1];
    return result;
  }

  void run(const Execution& execution) const override {
    sum_rows(execution, execution.inputs[0], execution.inputs[3], &execution.inputs[1],
             execution.outputs[0]);
  }
};

}  // namespace

Value reduce_experts(Builder& builder, Value expert_output, Value weights,
                     const TokenIndices& indices) {
  return builder.apply_single(
      std::make_shared<ReduceExperts>(),
      {expert_output, weights, indices.input_indices, indices.output_indices});
}

}  // namespace tessera
