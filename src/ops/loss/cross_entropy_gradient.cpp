#include "ops/loss/cross_entropy_gradient.h"

#include "ops/loss/cross_entropy_rows.h"
#include "ops/loss/logit_chunks.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// inputs: x [tokens, hidden], weight [vocabulary, hidden], targets i32 [tokens], log-sum-exp
/// [tokens], the loss's gradient [1], and the weight's main gradient, which run() adds into;
/// output: the gradient of x.
class LinearCrossEntropyGradient final : public Operation {
 public:
  explicit LinearCrossEntropyGradient(double z_coefficient) : z_coefficient_(z_coefficient) {}
  std::string_view name() const override { return "linear_cross_entropy_gradient"; }

  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 6 && inputs[5].shape == inputs[1].shape,
                   "six inputs, the last of the weight's shape");
    return {inputs[0]};
  }

  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    const auto logits = static_cast<double>(inputs[0].shape[0] * inputs[1].shape[0]);
    const auto hidden = static_cast<double>(inputs[0].shape[1]);
    return {.flops = 4 * logits * hidden,
            .repeated_flops = 2 * logits * hidden,
            .bytes = operand_bytes(inputs, outputs)};
  }

  std::vector<int> updated_inputs() const override { return {5}; }

  int64_t workspace_bytes(Context& context, std::span<const Spec> inputs) const override {
    const LogitChunks chunks(inputs[0], inputs[1]);
    int64_t scratch = 0;
    for (const int64_t rows : chunks.sizes()) {
      if (rows == 0) continue;
      scratch = std::max({scratch, of_x(context, inputs[0], inputs[1], rows).workspace_bytes(),
                          of_weight(context, inputs[0], inputs[1], rows).workspace_bytes()});
    }
    const int64_t forward = chunks.forward_bytes(context);
    const int64_t backward = chunks.logit_bytes() + narrow_bytes(chunks, inputs[0]) + scratch;
    return std::max(forward, backward);
  }

  void run(const Execution& execution) const override {
    dispatch_floating(execution.inputs[0].dtype(),
                      [&](auto type) { run_typed<decltype(type)>(execution); });
  }

 private:
  template <typename T>
  void run_typed(const Execution& execution) const {
    if constexpr (!std::is_same_v<T, double>) {
      if (!use_plain(execution.context, dtype_of<T>)) {
        return backward<T, float, FastRows>(execution);
      }
    }
    backward<T, Compute<T>, PlainRows<Compute<T>>>(execution);
  }

  /// In bf16 the logits' gradient lies behind the f32 logits; otherwise it takes their place.
  static int64_t narrow_bytes(const LogitChunks& chunks, const Spec& x) {
    return x.dtype == DType::bf16 ? chunks.logit_bytes() / 2 : 0;
  }

  template <typename T, typename Wide, typename Rows>
  void backward(const Execution& execution) const {
    const Spec x = spec_of(execution.inputs[0]);
    const Spec weight = spec_of(execution.inputs[1]);
    const int32_t* targets = execution.inputs[2].data<int32_t>();
    const Wide* log_sum_exp = execution.inputs[3].data<Wide>();
    const Wide seed = execution.inputs[4].data<Wide>()[0];
    const auto z = static_cast<Wide>(z_coefficient_);
    const int64_t vocabulary = weight.shape[0];
    const LogitChunks chunks(x, weight);
    chunks.for_each(execution, [&](int64_t first, int64_t rows, std::byte* memory) {
      auto* logits = reinterpret_cast<Wide*>(memory);
      const bool in_place = std::is_same_v<T, Wide>;
      auto* gradient = reinterpret_cast<T*>(in_place ? memory : memory + chunks.logit_bytes());
      parallel_ranges(execution.context.threads(), rows, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row) {
          const int32_t target = targets[first + row];
          Rows::gradient(logits + row * vocabulary, vocabulary, log_sum_exp[first + row], target,
                         target >= 0 ? seed : Wide{0}, z, gradient + row * vocabulary);
        }
      });
      std::byte* scratch = memory + chunks.logit_bytes() + narrow_bytes(chunks, x);
      of_x(execution.context, x, weight, rows)
          .run(gradient, execution.inputs[1].raw(),
               execution.outputs[0].slice(first, first + rows).raw(), scratch);
      of_weight(execution.context, x, weight, rows)
          .run(gradient, execution.inputs[0].slice(first, first + rows).raw(),
               execution.inputs[5].raw(), scratch);
    });
  }

  static const Gemm& of_x(Context& context, const Spec& x, const Spec& weight, int64_t rows) {
    return prepare_gemm(context, {.m = rows,
                                  .n = x.shape[1],
                                  .k = weight.shape[0],
                                  .input = x.dtype,
                                  .output = x.dtype,
                                  .threads = context.threads()});
  }

  static const Gemm& of_weight(Context& context, const Spec& x, const Spec& weight, int64_t rows) {
    return prepare_gemm(context, {.m = weight.shape[0],
                                  .n = x.shape[1],
                                  .k = rows,
                                  .input = x.dtype,
                                  .output = accumulation_dtype(x.dtype),
                                  .transpose_a = true,
                                  .accumulate = true,
                                  .threads = context.threads()});
  }

  double z_coefficient_;
};

}  // namespace

std::pair<Value, Value> linear_cross_entropy_gradient(Builder& builder, Value x, Value weight,
                                                      Value targets, Value log_sum_exp, Value seed,
                                                      double z_coefficient) {
  const Value main = builder.main_gradient(weight);
  TESSERA_CHECK(bool(main), "linear_cross_entropy_gradient: the weight is not a parameter");
  const Value of_x =
      builder.apply_single(std::make_shared<LinearCrossEntropyGradient>(z_coefficient),
                           {x, weight, targets, log_sum_exp, seed, main});
  return {of_x, main};
}

}  // namespace tessera
