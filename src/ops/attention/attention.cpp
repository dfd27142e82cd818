#include "ops/attention/attention.h"

#include "ops/attention/attention_fast.h"
#include "ops/attention/attention_plain.h"
#include "ops/attention/device_attention.h"
#include "ops/attention/scratch.h"
#include "ops/elementwise/elementwise.h"

// The operations "attention" and "attention_gradient". Both check their inputs, find the keys that
// each query attends to (KeyRanges), and run a kernel: attention_plain.h has the definitions,
// attention_fast.h the processor's kernels in tiles, and device_attention.h those of devices. The
// forward operation also writes each query's log-sum-exp, from which the backward pass computes the
// probabilities again.

namespace tessera {
namespace {

/// The members of AttentionPositions that are given. These are the last inputs, in this order.
struct GivenPositions {
  explicit GivenPositions(const AttentionPositions& positions)
      : document_starts(positions.document_starts.has_value()),
        queries(positions.queries.has_value()),
        keys(positions.keys.has_value()) {}
  size_t count() const { return size_t{document_starts} + queries + keys; }

  bool document_starts, queries, keys;
};

/// Returns the inputs, followed by the given positions.
std::vector<Value> with_positions(std::vector<Value> inputs, const AttentionPositions& positions) {
  for (const auto& given : {positions.document_starts, positions.queries, positions.keys}) {
    if (given) inputs.push_back(*given);
  }
  return inputs;
}

/// The base of the forward and the backward operation. Their inputs begin with q, k, v and end with
/// the given members of AttentionPositions.
class AttentionBase : public Operation {
 public:
  AttentionBase(const AttentionOptions& options, const GivenPositions& given, bool backward)
      : options_(options), given_(given), backward_(backward) {}

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    if (is_gpu(target)) return device_attention_workspace(target, device_attention(inputs));
    const AttentionShape sizes = shape(inputs);
    return key_range_bytes(sizes) + kernel_workspace_bytes(target, sizes, inputs[0].dtype);
  }
  void require_runnable(Runtime& runtime, std::span<const Spec> inputs) const override {
    require_device_attention(runtime, device_attention(inputs));
  }

 protected:
  /// Returns the labels of q and of tensors of its shape. If positions are not given, row indices
  /// are positions, so a rank needs whole sequences.
  std::string query_labels() const { return "(b " + sequence_label() + ") (h d!)"; }
  std::string position_labels() const {
    const std::string tokens = ", (b " + sequence_label() + ")";
    std::string labels;
    if (given_.document_starts) labels += tokens;
    if (given_.queries) labels += tokens;
    if (given_.keys) labels += ", (b z!)";
    return labels;
  }
  std::string sequence_label() const { return given_.queries ? "s" : "s!"; }
  AttentionShape shape(std::span<const Spec> inputs) const {
    return with_alignment(checked_attention_shape(*this, options_, options_.sequence, inputs));
  }
  AttentionShape shape(std::span<const Tensor> inputs) const {
    return with_alignment(attention_shape(options_, inputs[0].shape()[0], options_.sequence));
  }

  /// Checks the number of inputs, q, k, v, and the positions, which come after `floating` inputs.
  void expect_inputs(std::span<const Spec> inputs, size_t floating) const {
    const size_t expected = floating + given_.count();
    TESSERA_EXPECT(*this, inputs.size() == expected, "{} inputs; {} are expected", inputs.size(),
                   expected);
    const AttentionShape sizes = shape(inputs);
    size_t next = floating;
    const auto expect = [&](bool is_given, const char* what, int64_t rows) {
      if (!is_given) return;
      const Spec& given = inputs[next++];
      TESSERA_EXPECT(*this, is_like(given, {{rows}, DType::i32}), "{} {} for {} rows", what,
                     text_of(given), rows);
    };
    expect(given_.document_starts, "document starts", sizes.tokens());
    expect(given_.queries, "positions", sizes.tokens());
    expect(given_.keys, "key positions", sizes.sequences * sizes.keys);
  }

  /// Finds the key ranges. Stores them in the first key_range_bytes() of the workspace.
  KeyRanges key_ranges(const Execution& execution) const {
    return fill_key_ranges(*this, shape(execution.inputs), positions(execution.inputs),
                           execution.workspace.data());
  }
  std::byte* kernel_workspace(const Execution& execution) const {
    return execution.workspace.data() + key_range_bytes(shape(execution.inputs));
  }

  /// Returns the attention for a run on a device, or for a plan, in which `inputs` are specs.
  DeviceAttention device_attention(std::span<const Tensor> inputs) const {
    return {shape(inputs), inputs[0].dtype(), backward_, positions(inputs)};
  }
  DeviceAttention device_attention(std::span<const Spec> inputs) const {
    static constexpr int32_t kAnyPosition = 0;  // a plan asks only whether an address is null
    return {shape(inputs), inputs[0].dtype, backward_, addresses([] { return &kAnyPosition; })};
  }

  AttentionOptions options_;
  GivenPositions given_;

 private:
  int64_t kernel_workspace_bytes(const Target& target, const AttentionShape& sizes,
                                 DType dtype) const {
    if (!use_plain(target, dtype)) {
      return backward_ ? attention_gradient_fast_workspace(target, sizes, dtype)
                       : attention_fast_workspace(target, sizes, dtype);
    }
    // The sizes that attention_gradient_plain() and attention_plain() ask for.
    const int64_t numbers = backward_ ? (2 * sizes.keys + 1) * sizes.head_dim : sizes.keys;
    return target.threads * numbers * dtype_size(accumulation_dtype(dtype));
  }
  TokenPositions positions(std::span<const Tensor> inputs) const {
    size_t next = inputs.size() - given_.count();
    return addresses([&] { return inputs[next++].pointer<int32_t>(); });
  }
  /// Returns the result of next_address() for each member that is given.
  template <typename Next>
  TokenPositions addresses(Next&& next_address) const {
    return {.document_starts = given_.document_starts ? next_address() : nullptr,
            .queries = given_.queries ? next_address() : nullptr,
            .keys = given_.keys ? next_address() : nullptr};
  }
  // Row indices are not positions if those of queries or keys are given.
  AttentionShape with_alignment(AttentionShape shape) const {
    shape.aligned = shape.aligned && !given_.queries && !given_.keys;
    return shape;
  }

  bool backward_;
};

/// inputs: q, k, v, output, log-sum-exp, the gradient of the output, given
/// AttentionPositions; outputs: the gradients of q, k and v.
class AttentionGradient final : public AttentionBase {
 public:
  AttentionGradient(const AttentionOptions& options, const GivenPositions& given)
      : AttentionBase(options, given, true) {}
  std::string_view name() const override { return "attention_gradient"; }

  std::string labels(std::span<const Spec>) const override {
    return fmt::format(
        "{0}, (b z!) (g d!), (b z!) (g d!), {0}, b h {1}, ~{0}{2}"
        " -> (b s) (h d), (b z) (g d), (b z) (g d); h=g",
        query_labels(), sequence_label(), position_labels());
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    expect_inputs(inputs, 6);
    const AttentionShape sizes = shape(inputs);
    TESSERA_EXPECT(*this, is_like(inputs[3], inputs[0]) && is_like(inputs[5], inputs[0]),
                   "an output {} with a gradient {} for queries {}", inputs[3].shape.text(),
                   inputs[5].shape.text(), inputs[0].shape.text());
    TESSERA_EXPECT(*this,
                   is_like(inputs[4], {sizes.row_shape(), accumulation_dtype(inputs[0].dtype)}),
                   "a log-sum-exp {}", text_of(inputs[4]));
    return {inputs.begin(), inputs.begin() + 3};
  }

  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    const AttentionShape sizes = shape(inputs);
    return {.flops = 4 * sizes.product_flops(),
            .repeated_flops = sizes.product_flops(),
            .bytes = operand_bytes(inputs, outputs)};
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) {
      return run_on_device(*this, execution, device_attention(execution.inputs));
    }
    const auto& inputs = execution.inputs;
    const AttentionShape sizes = shape(inputs);
    std::byte* const workspace = kernel_workspace(execution);
    run_processor_kernel(
        execution, inputs[0].dtype(),
        [&]<typename T>(T) {
          return AttentionGradientOperands<T>{.q = inputs[0].data<T>(),
                                              .k = inputs[1].data<T>(),
                                              .v = inputs[2].data<T>(),
                                              .output = inputs[3].data<T>(),
                                              .log_sum_exp = inputs[4].data<Compute<T>>(),
                                              .output_gradient = inputs[5].data<T>(),
                                              .ranges = key_ranges(execution),
                                              .q_gradient = execution.outputs[0].data<T>(),
                                              .k_gradient = execution.outputs[1].data<T>(),
                                              .v_gradient = execution.outputs[2].data<T>()};
        },
        [&]<typename T>(const AttentionGradientOperands<T>& operands) {
          attention_gradient_plain(sizes, operands, reinterpret_cast<Compute<T>*>(workspace),
                                   execution.runtime.threads());
        },
        [&](const auto& operands) {
          attention_gradient_fast(execution.runtime, sizes, operands, workspace);
        });
  }
};

/// inputs: q, k, v, given AttentionPositions; outputs: the result and the log-sum-exp.
class Attention final : public AttentionBase {
 public:
  Attention(const AttentionOptions& options, const GivenPositions& given)
      : AttentionBase(options, given, false) {}
  std::string_view name() const override { return "attention"; }

  std::string labels(std::span<const Spec>) const override {
    return fmt::format("{}, (b z!) (g d!), (b z!) (g d!){} -> (b s) (h d), b h s; h=g",
                       query_labels(), position_labels());
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    expect_inputs(inputs, 3);
    const AttentionShape sizes = shape(inputs);
    const Spec& q = inputs[0];
    return {q, {sizes.row_shape(), accumulation_dtype(q.dtype)}};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    TESSERA_EXPECT(*this, !output_gradients[1], "a gradient of the log-sum-exp");
    std::vector<Value> result(self.inputs.size());
    if (!output_gradients[0]) return result;
    const Value q = self.inputs[0];
    std::vector<Value> inputs{q,
                              self.inputs[1],
                              self.inputs[2],
                              self.outputs[0],
                              self.outputs[1],
                              cast(builder, output_gradients[0], builder.spec(q).dtype)};
    inputs.insert(inputs.end(), self.inputs.begin() + 3, self.inputs.end());
    const auto gradients =
        builder.apply(std::make_shared<AttentionGradient>(options_, given_), std::move(inputs));
    std::copy(gradients.begin(), gradients.end(), result.begin());
    return result;
  }

  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    const AttentionShape sizes = shape(inputs);
    return {.flops = 2 * sizes.product_flops(), .bytes = operand_bytes(inputs, outputs)};
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) {
      return run_on_device(*this, execution, device_attention(execution.inputs));
    }
    const auto& inputs = execution.inputs;
    const KeyRanges attended = key_ranges(execution);
    std::byte* const workspace = kernel_workspace(execution);
    run_processor_kernel(
        execution, inputs[0].dtype(), [](auto type) { return type; },
        [&]<typename T>(T) {
          attention_plain(shape(inputs), inputs[0].data<T>(), inputs[1].data<T>(),
                          inputs[2].data<T>(), attended, execution.outputs[0].data<T>(),
                          execution.outputs[1].data<Compute<T>>(),
                          reinterpret_cast<Compute<T>*>(workspace), execution.runtime.threads());
        },
        [&]<typename T>(T) {
          attention_fast(execution.runtime, shape(inputs), inputs[0].data<T>(), inputs[1].data<T>(),
                         inputs[2].data<T>(), attended, execution.outputs[0].data<T>(),
                         execution.outputs[1].data<Compute<T>>(), workspace);
        });
  }
};

}  // namespace

AttentionPart attention_part(Builder& builder, Value q, Value k, Value v,
                             const AttentionOptions& options, const AttentionPositions& positions) {
  const auto outputs =
      builder.apply(std::make_shared<Attention>(options, GivenPositions(positions)),
                    with_positions({q, k, v}, positions));
  return {outputs[0], outputs[1]};
}

std::array<Value, 3> attention_part_gradient(Builder& builder, Value q, Value k, Value v,
                                             const AttentionPart& whole, Value output_gradient,
                                             const AttentionOptions& options,
                                             const AttentionPositions& positions) {
  const auto gradients = builder.apply(
      std::make_shared<AttentionGradient>(options, GivenPositions(positions)),
      with_positions({q, k, v, whole.output, whole.log_sum_exp, output_gradient}, positions));
  return {gradients[0], gradients[1], gradients[2]};
}

Value attention(Builder& builder, Value q, Value k, Value v, const AttentionOptions& options,
                const AttentionPositions& positions) {
  const AttentionPart whole = attention_part(builder, q, k, v, options, positions);
  builder.keep(whole.log_sum_exp, Keep::block);
  return whole.output;
}

}  // namespace tessera
