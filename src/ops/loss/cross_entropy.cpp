#include "ops/loss/cross_entropy.h"

#include "ops/loss/cross_entropy_gradient.h"
#include "ops/loss/cross_entropy_rows.h"
#include "ops/loss/logit_chunks.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// inputs: x [tokens, hidden], weight [vocabulary, hidden], targets i32 [tokens]; outputs: loss
/// [1], token loss [tokens], log-sum-exp [tokens].
class LinearCrossEntropy final : public Operation {
 public:
  explicit LinearCrossEntropy(double z_coefficient) : z_coefficient_(z_coefficient) {}
  std::string_view name() const override { return "linear_cross_entropy"; }

  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 3, "x, a weight and targets");
    const Spec& x = inputs[0];
    const Spec& weight = inputs[1];
    const Spec& targets = inputs[2];
    TESSERA_EXPECT(*this,
                   x.shape.rank() == 2 && weight.shape.rank() == 2 &&
                       x.shape[1] == weight.shape[1] && x.dtype == weight.dtype,
                   "x is {} {}, the weight {} {}", dtype_name(x.dtype), x.shape.text(),
                   dtype_name(weight.dtype), weight.shape.text());
    TESSERA_EXPECT(*this, targets.shape == Shape{x.shape[0]} && targets.dtype == DType::i32,
                   "the targets are {} {} for {} tokens", dtype_name(targets.dtype),
                   targets.shape.text(), x.shape[0]);
    const DType wide = accumulation_dtype(x.dtype);
    return {{{1}, wide, x.distribution},
            {{x.shape[0]}, wide, x.distribution},
            {{x.shape[0]}, wide, x.distribution}};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> of_outputs) const override {
    TESSERA_EXPECT(*this, !of_outputs[1] && !of_outputs[2],
                   "only the loss has a gradient, not the loss by token");
    const auto [of_x, of_weight] =
        linear_cross_entropy_gradient(builder, self.inputs[0], self.inputs[1], self.inputs[2],
                                      self.outputs[2], of_outputs[0], z_coefficient_);
    return {of_x, of_weight, Value{}};
  }

  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    const auto logits = static_cast<double>(inputs[0].shape[0] * inputs[1].shape[0]);
    return {.flops = 2 * logits * static_cast<double>(inputs[0].shape[1]),
            .bytes = operand_bytes(inputs, outputs)};
  }

  int64_t workspace_bytes(Context& context, std::span<const Spec> inputs) const override {
    return LogitChunks(inputs[0], inputs[1]).forward_bytes(context);
  }

  void run(const Execution& execution) const override {
    dispatch_floating(execution.inputs[0].dtype(),
                      [&](auto type) { run_typed<decltype(type)>(execution); });
  }

 private:
  template <typename T>
  void run_typed(const Execution& execution) const {
    if constexpr (!std::is_same_v<T, double>) {
      if (!use_plain(execution.context, dtype_of<T>)) return forward<float, FastRows>(execution);
    }
    forward<Compute<T>, PlainRows<Compute<T>>>(execution);
  }

  template <typename Wide, typename Rows>
  void forward(const Execution& execution) const {
    const Tensor& x = execution.inputs[0];
    const Tensor& weight = execution.inputs[1];
    const int32_t* targets = execution.inputs[2].data<int32_t>();
    Wide* token_loss = execution.outputs[1].data<Wide>();
    Wide* log_sum_exp = execution.outputs[2].data<Wide>();
    const int64_t vocabulary = weight.shape()[0];
    LogitChunks chunks(x, weight);
    chunks.for_each(execution, [&](int64_t first, int64_t rows, std::byte* memory) {
      const auto* logits = reinterpret_cast<const Wide*>(memory);
      parallel_ranges(execution.context.threads(), rows, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row) {
          const Wide* own = logits + row * vocabulary;
          const int32_t target = targets[first + row];
          const Wide sum = Rows::log_sum_exp(own, vocabulary);
          log_sum_exp[first + row] = sum;
          token_loss[first + row] = target >= 0 ? sum - own[target] : Wide{0};
        }
      });
    });
    double total = 0;
    for (int64_t token = 0; token < x.shape()[0]; ++token) {
      if (targets[token] < 0) continue;
      const double sum = log_sum_exp[token];
      total += static_cast<double>(token_loss[token]) + z_coefficient_ * sum * sum;
    }
    execution.outputs[0].data<Wide>()[0] = static_cast<Wide>(total);
  }

  double z_coefficient_;
};

}  // namespace

CrossEntropy linear_cross_entropy(Builder& builder, Value x, Value weight, Value targets,
                                  double z_coefficient) {
  const std::vector<Value> outputs =
      builder.apply(std::make_shared<LinearCrossEntropy>(z_coefficient), {x, weight, targets});
  return {outputs[0], outputs[1]};
}

}  // namespace tessera
