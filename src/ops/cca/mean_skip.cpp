#include "ops/cca/mean_skip.h"

#include "ops/attention/scratch.h"
#include "ops/cca/mean_skip_kernels.h"
#include "ops/cca/mean_skip_plain.h"
#include "ops/elementwise/elementwise.h"
#include "ops/support.h"
#include "ops/weight_parts.h"

namespace tessera {
namespace {

// The skip and the norm of compressed convolutional attention (mean_skip.h), and their gradient.
// Both operations take the same seven operands, which their base checks and hands to the kernels.

/// The base of the operation and its gradient. The inputs begin with queries and keys before the
/// convolutions, queries and keys after them, both biases and the temperature.
class MeanSkip : public Operation {
 public:
  explicit MeanSkip(const MeanSkipOptions& options) : options_(options) {}

 protected:
  static constexpr size_t kOperands = 7;
  static constexpr std::string_view kQuery = "t (g r! d!)", kKey = "t (g d!)";

  static std::string operand_labels() {
    return fmt::format("{0}, {1}, {0}, {1}, (g r! d!), (g d!), g", kQuery, kKey);
  }

  void expect_operands(std::span<const Spec> inputs) const {
    const Spec &query = inputs[0], &key = inputs[1];
    const int64_t head_dim = options_.head_dim;
    TESSERA_EXPECT(*this, options_.epsilon > 0, "an epsilon of {}; it must be positive",
                   options_.epsilon);
    TESSERA_EXPECT(*this,
                   query.shape.rank() == 2 && key.shape.rank() == 2 && is_floating(query.dtype) &&
                       query.shape[0] == key.shape[0] && query.dtype == key.dtype,
                   "queries {} and keys {}; [tokens, heads * head_dim] is expected", text_of(query),
                   text_of(key));
    TESSERA_EXPECT(*this,
                   head_dim > 0 && key.shape[1] > 0 && key.shape[1] % head_dim == 0 &&
                       query.shape[1] % key.shape[1] == 0,
                   "queries {} on keys {} with heads of {}; whole heads, as many for each key, are "
                   "expected",
                   query.shape.text(), key.shape.text(), head_dim);
    const DType wide = accumulation_dtype(query.dtype);
    expect_like(inputs, {{query.shape, query.dtype},
                         {key.shape, key.dtype},
                         {{query.shape[1]}, wide},
                         {{key.shape[1]}, wide},
                         {{key.shape[1] / head_dim}, wide}});
  }

  /// Checks the shapes and types of the inputs from number `first` on.
  void expect_like(std::span<const Spec> inputs, const std::vector<Spec>& expected,
                   size_t first = 2) const {
    for (size_t i = 0; i < expected.size(); ++i) {
      const Spec& input = inputs[first + i];
      TESSERA_EXPECT(*this, is_like(input, expected[i]), "input {} is {}; {} is expected",
                     first + i, text_of(input), text_of(expected[i]));
    }
  }

  /// Checks that a device has kernels of these sizes. Plans call it through workspace_bytes().
  void expect_device_sizes(const Target& target, std::span<const Spec> inputs) const {
    if (target.device == Device::cpu) return;
    const int64_t channels = (inputs[0].shape[1] / inputs[1].shape[1] + 1) * options_.head_dim;
    TESSERA_EXPECT(*this, options_.head_dim <= kMostSkipHeadDim && channels <= kMostSkipChannels,
                   "heads of {}, {} channels for each key head; a device takes {} and {}",
                   options_.head_dim, channels, kMostSkipHeadDim, kMostSkipChannels);
  }

  template <typename T>
  MeanSkipOperands<T> operands(std::span<const Tensor> inputs) const {
    using Wide = Compute<T>;
    const Shape &query = inputs[0].shape(), &key = inputs[1].shape();
    return {.tokens = query[0],
            .groups = key[1] / options_.head_dim,
            .heads = query[1] / key[1],
            .head_dim = options_.head_dim,
            .epsilon = options_.epsilon,
            .projected_query = inputs[0].pointer<T>(),
            .projected_key = inputs[1].pointer<T>(),
            .convolved_query = inputs[2].pointer<T>(),
            .convolved_key = inputs[3].pointer<T>(),
            .query_bias = inputs[4].pointer<Wide>(),
            .key_bias = inputs[5].pointer<Wide>(),
            .temperature = inputs[6].pointer<Wide>()};
  }

  MeanSkipOptions options_;
};

/// inputs: the operands, then the gradients of the results. outputs: the gradients of the operands.
class MeanSkipNormGradient final : public MeanSkip {
 public:
  using MeanSkip::MeanSkip;
  std::string_view name() const override { return "mean_skip_norm_gradient"; }

  std::string labels(std::span<const Spec>) const override {
    return fmt::format(
        "{0}, ~{1} + ~{2} -> t (g r d), t (g d), t (g r d), t (g d), (g r d), (g d), g",
        operand_labels(), kQuery, kKey);
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == kOperands + 2, "{} inputs", inputs.size());
    expect_operands(inputs);
    expect_like(inputs, {inputs[0], inputs[1]}, kOperands);
    std::vector<Spec> outputs;
    for (const Spec& operand : inputs.first(kOperands)) {
      outputs.push_back({operand.shape, operand.dtype, {}});
    }
    return outputs;
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    expect_device_sizes(target, inputs);
    const DType dtype = inputs[0].dtype;
    const int64_t parts = part_count(target, dtype, inputs[0].shape[0]);
    if (dtype == DType::f64)
      return GradientScratch<double>(*this, target, weight_elements(inputs), parts).bytes;
    return GradientScratch<float>(*this, target, weight_elements(inputs), parts).bytes;
  }

  /// Lets the gradients of the convolutions' results overwrite the gradients of the outputs: the
  /// kernels read a row before they write it.
  int in_place_input(int output) const override {
    if (output == 2) return static_cast<int>(kOperands);
    return output == 3 ? static_cast<int>(kOperands) + 1 : -1;
  }

  void run(const Execution& execution) const override {
    const int threads = execution.runtime.threads();
    const DType dtype = execution.inputs[0].dtype();
    const int64_t parts =
        part_count(execution.runtime.target(), dtype, execution.inputs[0].shape()[0]);
    run_kernel(
        execution, dtype, [&]<typename T>(T) { return arguments<T>(execution, parts); },
        [&]<typename Vendor>(Vendor, const auto& skip) {
          mean_skip_gradient_device<Vendor>(skip, parts, *execution.stream);
        },
        [&](const auto& skip) { mean_skip_gradient_plain(skip, threads); },
        [&](const auto& skip) { mean_skip_gradient_fast(skip, parts, threads); });
  }

 private:
  /// Returns the number of parts in which sums over tokens are taken: 0 for the plain kernel.
  static int64_t part_count(const Target& target, DType dtype, int64_t tokens) {
    const bool plain = target.device == Device::cpu && use_plain(target, dtype);
    return plain ? 0 : token_parts(target, tokens);
  }
  static int64_t weight_elements(std::span<const Spec> inputs) {
    return inputs[4].shape[0] + inputs[5].shape[0] + inputs[6].shape[0];
  }

  /// The parts of the workspace. `rows` is [threads, 3, head_dim], `sums` [parts, width].
  template <typename Wide>
  struct GradientScratch {
    GradientScratch(const MeanSkipNormGradient& operation, const Target& target, int64_t width,
                    int64_t parts, std::byte* base = nullptr) {
      Scratch memory(base);
      rows = memory.array<Wide>(target.threads * 3 * operation.options_.head_dim);
      sums = memory.array<Wide>(parts * width);
      bytes = memory.bytes();
    }
    Wide* rows;
    Wide* sums;
    int64_t bytes;
  };

  template <typename T>
  MeanSkipBackward<T> arguments(const Execution& execution, int64_t parts) const {
    using Wide = Compute<T>;
    const std::span<const Tensor> inputs = execution.inputs, outputs = execution.outputs;
    const GradientScratch<Wide> work(*this, execution.runtime.target(),
                                     weight_elements(specs_of(inputs)), parts,
                                     execution.workspace.data());
    return {.operands = operands<T>(inputs),
            .query_gradient = inputs[kOperands].pointer<T>(),
            .key_gradient = inputs[kOperands + 1].pointer<T>(),
            .projected_query_gradient = outputs[0].pointer<T>(),
            .projected_key_gradient = outputs[1].pointer<T>(),
            .convolved_query_gradient = outputs[2].pointer<T>(),
            .convolved_key_gradient = outputs[3].pointer<T>(),
            .query_bias_gradient = outputs[4].pointer<Wide>(),
            .key_bias_gradient = outputs[5].pointer<Wide>(),
            .temperature_gradient = outputs[6].pointer<Wide>(),
            .scratch = work.rows,
            .parts = work.sums};
  }
};

/// inputs: the operands. outputs: queries and keys.
class MeanSkipNorm final : public MeanSkip {
 public:
  using MeanSkip::MeanSkip;
  std::string_view name() const override { return "mean_skip_norm"; }

  std::string labels(std::span<const Spec>) const override {
    return operand_labels() + " -> t (g r d), t (g d)";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == kOperands, "{} inputs", inputs.size());
    expect_operands(inputs);
    return {{inputs[0].shape, inputs[0].dtype, {}}, {inputs[1].shape, inputs[1].dtype, {}}};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    TESSERA_EXPECT(*this, output_gradients[0] && output_gradients[1],
                   "a gradient of the queries or the keys alone");
    std::vector<Value> inputs = self.inputs;
    for (const Value gradient : output_gradients) {
      inputs.push_back(cast(builder, gradient, builder.spec(self.inputs[0]).dtype));
    }
    return builder.apply(std::make_shared<MeanSkipNormGradient>(options_), std::move(inputs));
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    expect_device_sizes(target, inputs);
    return target.threads * 2 * options_.head_dim * static_cast<int64_t>(sizeof(double));
  }

  /// Lets the outputs overwrite the convolutions' results. Kernels read a row before they write it.
  int in_place_input(int output) const override { return 2 + output; }

  void run(const Execution& execution) const override {
    const int threads = execution.runtime.threads();
    run_kernel(
        execution, execution.inputs[0].dtype(),
        [&]<typename T>(T) { return arguments<T>(execution); },
        [&]<typename Vendor>(Vendor, const auto& skip) {
          mean_skip_device<Vendor>(skip, *execution.stream);
        },
        [&](const auto& skip) { mean_skip_plain(skip, threads); },
        [&](const auto& skip) { mean_skip_fast(skip, threads); });
  }

 private:
  template <typename T>
  MeanSkipForward<T> arguments(const Execution& execution) const {
    return {.operands = operands<T>(execution.inputs),
            .query = execution.outputs[0].pointer<T>(),
            .key = execution.outputs[1].pointer<T>(),
            .scratch = reinterpret_cast<Compute<T>*>(execution.workspace.data())};
  }
};

}  // namespace

QueryAndKey mean_skip_norm(Builder& builder, const QueryAndKey& projected,
                           const QueryAndKey& convolved, const QueryAndKey& bias, Value temperature,
                           const MeanSkipOptions& options) {
  const std::vector<Value> outputs = builder.apply(
      std::make_shared<MeanSkipNorm>(options), {projected.query, projected.key, convolved.query,
                                                convolved.key, bias.query, bias.key, temperature});
  return {outputs[0], outputs[1]};
}

}  // namespace tessera
