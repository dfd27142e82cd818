#include "ops/attention/attention.h"

#include "ops/attention/attention_fast.h"
#include "ops/attention/attention_plain.h"
#include "ops/attention/scratch.h"
#include "ops/elementwise/elementwise.h"

namespace tessera {
namespace {

/// What the forward and the backward operation have in common. Their inputs begin with q, k, v and
/// end with the document starts, if there are any.
class AttentionBase : public Operation {
 protected:
  explicit AttentionBase(const AttentionOptions& options) : options_(options) {}

  AttentionShape shape(std::span<const Spec> inputs) const {
    return checked_attention_shape(*this, options_, options_.sequence, inputs);
  }
  AttentionShape shape(std::span<const Tensor> inputs) const {
    return attention_shape(options_, inputs[0].shape()[0], options_.sequence);
  }

  void expect_inputs(std::span<const Spec> inputs, size_t floating) const {
    const size_t expected = floating + (options_.document_mask ? 1 : 0);
    TESSERA_EXPECT(*this, inputs.size() == expected, "{} inputs{}; {} are expected", inputs.size(),
                   options_.document_mask ? " with a document mask" : "", expected);
    if (!options_.document_mask) return;
    const Spec& starts = inputs[floating];
    TESSERA_EXPECT(*this, starts.dtype == DType::i32 && starts.shape == Shape({inputs[0].shape[0]}),
                   "document starts {} {} for {} tokens", dtype_name(starts.dtype),
                   starts.shape.text(), inputs[0].shape[0]);
  }

  /// Null without document masks.
  const int32_t* document_starts(std::span<const Tensor> inputs) const {
    if (!options_.document_mask) return nullptr;
    const int32_t* starts = inputs.back().data<int32_t>();
    for (int64_t token = 0; token < inputs.back().elements(); ++token) {
      const int64_t index = token % options_.sequence;
      TESSERA_EXPECT(*this, starts[token] >= 0 && starts[token] <= index,
                     "token {} of its sequence is in a document that starts at {}", index,
                     starts[token]);
    }
    return starts;
  }

  AttentionOptions options_;
};

/// inputs: q, k, v, output, log-sum-exp [heads, tokens], the output's gradient, document starts;
/// outputs: the gradients of q, k and v.
class AttentionGradient final : public AttentionBase {
 public:
  explicit AttentionGradient(const AttentionOptions& options) : AttentionBase(options) {}
  std::string_view name() const override { return "attention_gradient"; }

  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    expect_inputs(inputs, 6);
    const AttentionShape sizes = shape(inputs);
    TESSERA_EXPECT(*this,
                   inputs[3].shape == inputs[0].shape && inputs[5].shape == inputs[0].shape &&
                       inputs[3].dtype == inputs[0].dtype && inputs[5].dtype == inputs[0].dtype,
                   "an output {} with a gradient {} for queries {}", inputs[3].shape.text(),
                   inputs[5].shape.text(), inputs[0].shape.text());
    TESSERA_EXPECT(*this,
                   inputs[4].shape == Shape({sizes.heads, sizes.tokens()}) &&
                       inputs[4].dtype == accumulation_dtype(inputs[0].dtype),
                   "a log-sum-exp {} {}", dtype_name(inputs[4].dtype), inputs[4].shape.text());
    return {inputs.begin(), inputs.begin() + 3};
  }

  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    const AttentionShape sizes = shape(inputs);
    return {.flops = 4 * sizes.product_flops(),
            .repeated_flops = sizes.product_flops(),
            .bytes = operand_bytes(inputs, outputs)};
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    const AttentionShape sizes = shape(inputs);
    const DType dtype = inputs[0].dtype;
    if (!use_plain(target, dtype)) return attention_gradient_fast_workspace(target, sizes, dtype);
    return target.threads * (2 * sizes.sequence + 1) * sizes.head_dim *
           dtype_size(accumulation_dtype(dtype));
  }

  void run(const Execution& execution) const override {
    dispatch_floating(execution.inputs[0].dtype(),
                      [&](auto type) { run_typed<decltype(type)>(execution); });
  }

 private:
  template <typename T>
  void run_typed(const Execution& execution) const {
    const auto& inputs = execution.inputs;
    const AttentionGradientOperands<T> operands{.q = inputs[0].data<T>(),
                                                .k = inputs[1].data<T>(),
                                                .v = inputs[2].data<T>(),
                                                .output = inputs[3].data<T>(),
                                                .log_sum_exp = inputs[4].data<Compute<T>>(),
                                                .of_output = inputs[5].data<T>(),
                                                .document_starts = document_starts(inputs),
                                                .of_q = execution.outputs[0].data<T>(),
                                                .of_k = execution.outputs[1].data<T>(),
                                                .of_v = execution.outputs[2].data<T>()};
    if constexpr (!std::is_same_v<T, double>) {
      if (!use_plain(execution.runtime.target(), dtype_of<T>)) {
        return attention_gradient_fast(execution.runtime, shape(inputs), operands,
                                       execution.workspace.data());
      }
    }
    attention_gradient_plain(shape(inputs), operands,
                             reinterpret_cast<Compute<T>*>(execution.workspace.data()),
                             execution.runtime.threads());
  }
};

/// inputs: q, k, v, document starts; outputs: the result and the log-sum-exp [heads, tokens].
class Attention final : public AttentionBase {
 public:
  explicit Attention(const AttentionOptions& options) : AttentionBase(options) {}
  std::string_view name() const override { return "attention"; }

  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    expect_inputs(inputs, 3);
    const AttentionShape sizes = shape(inputs);
    const Spec& q = inputs[0];
    return {q, {{sizes.heads, sizes.tokens()}, accumulation_dtype(q.dtype), q.distribution}};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> of_outputs) const override {
    TESSERA_EXPECT(*this, !of_outputs[1], "a gradient of the log-sum-exp");
    std::vector<Value> result(self.inputs.size());
    if (!of_outputs[0]) return result;
    const Value q = self.inputs[0];
    std::vector<Value> inputs{q,
                              self.inputs[1],
                              self.inputs[2],
                              self.outputs[0],
                              self.outputs[1],
                              cast(builder, of_outputs[0], builder.spec(q).dtype)};
    if (options_.document_mask) inputs.push_back(self.inputs[3]);
    const auto gradients =
        builder.apply(std::make_shared<AttentionGradient>(options_), std::move(inputs));
    std::copy(gradients.begin(), gradients.end(), result.begin());
    return result;
  }

  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    const AttentionShape sizes = shape(inputs);
    return {.flops = 2 * sizes.product_flops(), .bytes = operand_bytes(inputs, outputs)};
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    const DType dtype = inputs[0].dtype;
    if (!use_plain(target, dtype)) return attention_fast_workspace(target, shape(inputs), dtype);
    return target.threads * options_.sequence * dtype_size(accumulation_dtype(dtype));
  }

  void run(const Execution& execution) const override {
    dispatch_floating(execution.inputs[0].dtype(),
                      [&](auto type) { run_typed<decltype(type)>(execution); });
  }

 private:
  template <typename T>
  void run_typed(const Execution& execution) const {
    const auto& inputs = execution.inputs;
    const T* q = inputs[0].data<T>();
    const T* k = inputs[1].data<T>();
    const T* v = inputs[2].data<T>();
    const int32_t* starts = document_starts(inputs);
    T* output = execution.outputs[0].data<T>();
    auto* log_sum_exp = execution.outputs[1].data<Compute<T>>();
    std::byte* workspace = execution.workspace.data();
    if constexpr (!std::is_same_v<T, double>) {
      if (!use_plain(execution.runtime.target(), dtype_of<T>)) {
        return attention_fast(execution.runtime, shape(inputs), q, k, v, starts, output,
                              log_sum_exp, workspace);
      }
    }
    attention_plain(shape(inputs), q, k, v, starts, output, log_sum_exp,
                    reinterpret_cast<Compute<T>*>(workspace), execution.runtime.threads());
  }
};

}  // namespace

Value attention(Builder& builder, Value q, Value k, Value v, const AttentionOptions& options,
                std::optional<Value> document_starts) {
  std::vector<Value> inputs{q, k, v};
  if (document_starts) inputs.push_back(*document_starts);
  const auto outputs = builder.apply(std::make_shared<Attention>(options), std::move(inputs));
  builder.keep(outputs[1], Keep::block);
  return outputs[0];
}

}  // namespace tessera
