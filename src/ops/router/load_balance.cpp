#include "ops/labels.h"
#include "ops/router/kernels.h"
#include "ops/router/losses.h"
#include "ops/router/router_kernels.h"

namespace tessera {
namespace {

/// The common part of the loss and its gradient: coefficient · E (/ k per layer) and f_e.
class Balance {
 public:
  Balance(double coefficient, int64_t k, BalanceForm form)
      : coefficient_(form == BalanceForm::per_layer ? coefficient / static_cast<double>(k)
                                                    : coefficient) {}

  double scale(int64_t experts) const { return coefficient_ * static_cast<double>(experts); }

  /// Returns what the loss makes of Σ_e (Σ_l counts_le) (Σ_lt p_lte).
  double of_sums(size_t layers, int64_t tokens, int64_t experts) const {
    if (tokens == 0) return 0;
    const auto all = static_cast<double>(layers);
    return scale(experts) / (all * static_cast<double>(tokens)) / all;
  }

  /// Returns f_e: the choices of expert e per token, over all layers.
  static double fraction(std::span<const Tensor> counts, int64_t tokens, int64_t expert) {
    double sum = 0;
    for (const Tensor& layer : counts) sum += layer.data<int32_t>()[expert];
    return sum / static_cast<double>(static_cast<int64_t>(counts.size()) * tokens);
  }

 private:
  double coefficient_;
};

/// What a device's kernels need to know of the layers. `probabilities` may be empty.
BalanceLayers layers_on_device(std::span<const Tensor> probabilities,
                               std::span<const Tensor> counts, int64_t tokens) {
  BalanceLayers layers{
      .count = static_cast<int>(counts.size()), .tokens = tokens, .experts = counts[0].elements()};
  TESSERA_CHECK(layers.count <= BalanceLayers::kMost && layers.experts <= kMostDeviceExperts,
                "a load-balance loss of {} layers of {} experts; a device takes up to {} of {}",
                layers.count, layers.experts, BalanceLayers::kMost, kMostDeviceExperts);
  for (size_t layer = 0; layer < counts.size(); ++layer) {
    layers.counts[layer] = counts[layer].pointer<int32_t>();
    if (!probabilities.empty()) {
      layers.probabilities[layer] = probabilities[layer].pointer<float>();
    }
  }
  return layers;
}

/// inputs: the gradient of the loss [1], then each layer's counts i32 [experts]; output: the
/// gradient of a layer's probabilities [tokens, experts]. It is the same for all layers.
class LoadBalanceGradient final : public Operation {
 public:
  LoadBalanceGradient(const Balance& balance, Spec probabilities)
      : balance_(balance), probabilities_(std::move(probabilities)) {}
  std::string_view name() const override { return "load_balance_gradient"; }

  std::string labels(std::span<const Spec> inputs) const override {
    return "~u!, " + repeated("E!", inputs.size() - 1) + ", ?n! E! -> n E";
  }
  std::vector<Spec> shape_operands() const override { return {probabilities_}; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() >= 2 && inputs[0].shape == Shape({1}),
                   "the gradient of a scalar and counts are expected");
    return {probabilities_};
  }
  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    return {.bytes = operand_bytes(inputs, outputs)};
  }

  /// Σ_t p_te enters the loss with the factor T · scale · f_e / (L T).
  void run(const Execution& execution) const override {
    const Tensor& result = execution.outputs[0];
    const std::span<const Tensor> counts = execution.inputs.subspan(1);
    const int64_t tokens = result.shape()[0];
    const int64_t experts = result.shape()[1];
    if (execution.stream != nullptr) {
      const BalanceLayers layers = layers_on_device({}, counts, tokens);
      return for_vendor(*execution.stream, [&](auto vendor) {
        load_balance_gradient_device<decltype(vendor)>(
            layers, balance_.of_sums(counts.size(), tokens, experts),
            execution.inputs[0].pointer<float>(), result.pointer<float>(), *execution.stream);
      });
    }
    dispatch_wide(result.dtype(), [&](auto type) {
      using T = decltype(type);
      if (tokens == 0) return;
      T* row = result.data<T>();
      const auto of_loss = static_cast<double>(execution.inputs[0].data<T>()[0]);
      for (int64_t e = 0; e < experts; ++e) {
        row[e] = static_cast<T>(of_loss * balance_.scale(experts) *
                                Balance::fraction(counts, tokens, e) /
                                static_cast<double>(counts.size()));
      }
      parallel_ranges(execution.runtime.threads(), tokens - 1, row_grain(experts),
                      [=](int64_t begin, int64_t end, int) {
                        for (int64_t t = begin + 1; t <= end; ++t) {
                          std::copy_n(row, experts, row + t * experts);
                        }
                      });
    });
  }

 private:
  Balance balance_;
  Spec probabilities_;
};

/// inputs: each layer's probabilities [tokens, experts], then each layer's counts i32 [experts];
/// output [1].
class LoadBalanceLoss final : public Operation {
 public:
  LoadBalanceLoss(const Balance& balance, BalanceForm form) : balance_(balance), form_(form) {}
  std::string_view name() const override { return "load_balance_loss"; }

  std::string labels(std::span<const Spec> inputs) const override {
    const size_t layers = inputs.size() / 2;
    return repeated("n! E!", layers) + ", " + repeated("E!", layers) + " -> u";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, !inputs.empty() && inputs.size() % 2 == 0,
                   "{} inputs; as many counts as probabilities are expected", inputs.size());
    const size_t layers = inputs.size() / 2;
    TESSERA_EXPECT(*this, form_ == BalanceForm::pooled || layers == 1,
                   "{} layers in the form of one", layers);
    for (size_t layer = 0; layer < layers; ++layer) {
      const Spec& probabilities = inputs[layer];
      const Spec& counts = inputs[layers + layer];
      TESSERA_EXPECT(*this,
                     is_router_matrix(probabilities) && probabilities.shape == inputs[0].shape &&
                         probabilities.dtype == inputs[0].dtype,
                     "probabilities {} {} of layer {}, the first are {} {}",
                     dtype_name(probabilities.dtype), probabilities.shape.text(), layer,
                     dtype_name(inputs[0].dtype), inputs[0].shape.text());
      TESSERA_EXPECT(*this,
                     counts.dtype == DType::i32 && counts.shape == Shape({inputs[0].shape[1]}),
                     "counts {} {} for {} experts", dtype_name(counts.dtype), counts.shape.text(),
                     inputs[0].shape[1]);
    }
    return {{{1}, inputs[0].dtype}};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> of_outputs) const override {
    std::vector<Value> result(self.inputs.size());
    if (!of_outputs[0]) return result;
    const size_t layers = self.inputs.size() / 2;
    std::vector<Value> inputs{of_outputs[0]};
    inputs.insert(inputs.end(), self.inputs.begin() + static_cast<std::ptrdiff_t>(layers),
                  self.inputs.end());
    const Value shared = builder.apply_single(
        std::make_shared<LoadBalanceGradient>(balance_, builder.spec(self.inputs[0])), inputs);
    std::fill_n(result.begin(), layers, shared);
    return result;
  }

  Cost cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const override {
    return {.bytes = operand_bytes(inputs, outputs)};
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    const int64_t layers = static_cast<int64_t>(inputs.size()) / 2;
    if (target.device != Device::cpu) {
      const Shape& shape = inputs[0].shape;
      return layers * balance_blocks(layers, shape[0], shape[1]) * dtype_size(DType::f32);
    }
    return layers * blocks(inputs[0].shape[0]) * inputs[0].shape[1] * dtype_size(inputs[0].dtype);
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    dispatch_wide(execution.outputs[0].dtype(),
                  [&](auto type) { evaluate<decltype(type)>(execution); });
  }

 private:
  /// The number of tokens whose probabilities are summed in one go. It is fixed, so the sum does
  /// not depend on the number of threads.
  static constexpr int64_t kBlock = 256;
  static int64_t blocks(int64_t tokens) { return (tokens + kBlock - 1) / kBlock; }

  void run_on_device(const Execution& execution) const {
    const size_t count = execution.inputs.size() / 2;
    const Shape& shape = execution.inputs[0].shape();
    const BalanceLayers layers =
        layers_on_device(execution.inputs.first(count), execution.inputs.subspan(count), shape[0]);
    for_vendor(*execution.stream, [&](auto vendor) {
      load_balance_loss_device<decltype(vendor)>(
          layers, balance_.of_sums(count, shape[0], shape[1]),
          reinterpret_cast<float*>(execution.workspace.data()),
          execution.outputs[0].pointer<float>(), *execution.stream);
    });
  }

  template <typename T>
  void evaluate(const Execution& execution) const {
    const Shape& shape = execution.inputs[0].shape();
    const int64_t tokens = shape[0];
    const int64_t experts = shape[1];
    const auto layers = static_cast<int64_t>(execution.inputs.size() / 2);
    const int64_t parts = layers * blocks(tokens);
    T* sums = reinterpret_cast<T*>(execution.workspace.data());  // [parts, experts]
    parallel_ranges(
        execution.runtime.threads(), parts, row_grain(kBlock * experts),
        [&](int64_t begin, int64_t end, int) {
          for (int64_t part = begin; part < end; ++part) {
            const Tensor& layer = execution.inputs[static_cast<size_t>(part / blocks(tokens))];
            const int64_t first = part % blocks(tokens) * kBlock;
            sum_columns(layer.data<T>() + first * experts, std::min(kBlock, tokens - first),
                        experts, sums + part * experts);
          }
        });
    const auto counts = execution.inputs.subspan(static_cast<size_t>(layers));
    double total = 0;  // Σ_e f_e Σ_lt p_lte
    for (int64_t e = 0; tokens > 0 && e < experts; ++e) {
      double sum = 0;
      for (int64_t part = 0; part < parts; ++part) {
        sum += static_cast<double>(sums[part * experts + e]);
      }
      total += Balance::fraction(counts, tokens, e) * sum;
    }
    execution.outputs[0].data<T>()[0] =
        static_cast<T>(balance_.scale(experts) * total / static_cast<double>(layers));
  }

  /// sums_e = Σ_t rows_te.
  template <typename T>
  static void sum_columns(const T* rows, int64_t count, int64_t columns, T* sums) {
    std::fill_n(sums, columns, T{0});
    for (int64_t t = 0; t < count; ++t) {
#pragma omp simd
      for (int64_t e = 0; e < columns; ++e) sums[e] += rows[t * columns + e];
    }
  }

  Balance balance_;
  BalanceForm form_;
};

}  // namespace

Value load_balance_loss(Builder& builder, std::span<const Value> probabilities,
                        std::span<const Value> counts, double coefficient, int64_t k,
                        BalanceForm form) {
  std::vector<Value> inputs(probabilities.begin(), probabilities.end());
  inputs.insert(inputs.end(), counts.begin(), counts.end());
  return builder.apply_single(
      std::make_shared<LoadBalanceLoss>(Balance(coefficient, k, form), form), std::move(inputs));
}

}  // namespace tessera
