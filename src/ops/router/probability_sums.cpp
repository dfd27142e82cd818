#include <optional>

#include <fmt/format.h>

#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/labels.h"
#include "ops/router/losses.h"
#include "ops/router/processor_rows.h"
#include "ops/router/router_kernels.h"

namespace tessera {
namespace {

// The sums are taken over blocks of tokens and then over the blocks, in an order that is fixed.

/// The number of sets of tokens (losses.h) that are summed apart; none: all are summed together.
using Sets = std::optional<int64_t>;

Shape shape_of_sums(const Sets& sets, int64_t experts) {
  return sets ? Shape{*sets, experts} : Shape{experts};
}

/// input: the gradient of the sums, f64 [experts] or [sets, experts]; output: the gradient of a
/// layer's probabilities, [tokens, experts], in which all rows of a set are the same.
class ProbabilitySumsGradient final : public Operation {
 public:
  ProbabilitySumsGradient(Spec probabilities, Sets sets)
      : probabilities_(std::move(probabilities)), sets_(sets) {}
  std::string_view name() const override { return "probability_sums_gradient"; }

  std::string labels(std::span<const Spec>) const override {
    return sets_ ? "~s E, ?(s n) E -> (s n) E" : "~E, ?n E -> n E";
  }
  std::vector<Spec> shape_operands() const override { return {probabilities_}; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this,
                   inputs.size() == 1 && inputs[0].dtype == DType::f64 &&
                       inputs[0].shape == shape_of_sums(sets_, probabilities_.shape[1]),
                   "the f64 gradient of a sum for each of {} experts is expected",
                   probabilities_.shape[1]);
    return {probabilities_};
  }

  void run(const Execution& execution) const override {
    const Tensor& result = execution.outputs[0];
    const int64_t tokens = result.shape()[0];
    const int64_t experts = result.shape()[1];
    if (execution.stream != nullptr) {  // for one set: ProbabilitySums refuses several on a device
      return for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
        probability_sums_gradient_device<Vendor>(tokens, experts,
                                                 execution.inputs[0].pointer<double>(),
                                                 result.pointer<float>(), *execution.stream);
      });
    }
    dispatch_wide(result.dtype(), [&]<typename T>(T) {
      const double* sums = execution.inputs[0].data<double>();
      T* rows = result.data<T>();
      const int64_t set_tokens = tokens / sets_.value_or(1);
      for_each_token(execution, tokens, experts, [=](int64_t t) {
        T* row = rows + t * experts;
        const double* set_sums = sums + t / set_tokens * experts;
#pragma omp simd
        for (int64_t e = 0; e < experts; ++e) row[e] = static_cast<T>(set_sums[e]);
      });
    });
  }

 private:
  Spec probabilities_;
  Sets sets_;
};

/// inputs: the probabilities of each layer, [tokens, experts], then the sums of earlier layers, if
/// there are any; output: f64 [experts], or [sets, experts]. The sums are of the same type.
class ProbabilitySums final : public Operation {
 public:
  ProbabilitySums(Sets sets, bool has_earlier) : sets_(sets), has_earlier_(has_earlier) {}
  std::string_view name() const override { return "probability_sums"; }

  std::string labels(std::span<const Spec> inputs) const override {
    if (has_earlier_) {
      return sets_ ? repeated("~(s n!) E", layers_in(inputs), " + ") + " + ~s E -> s E"
                   : repeated("~n! E", layers_in(inputs), " + ") + " + ~E -> E";
    }
    return sets_ ? repeated("~(s n) E", inputs.size(), " + ") + " -> s E"
                 : repeated("~n E", inputs.size(), " + ") + " -> E";
  }
  /// Returns the rule for axes that split a set's tokens, where the earlier sums are partial as the
  /// result is. Labels cannot state it: they take a term without the split label for a whole one.
  /// So with earlier sums they call the tokens whole.
  HandRule hand_rule() const override {
    if (!has_earlier_) return {};
    return [has_sets = sets_.has_value()](
               Axis, std::span<const TypeOnAxis> inputs) -> std::optional<std::vector<TypeOnAxis>> {
      const TypeOnAxis& layer = inputs.front();
      const bool splits_a_set = layer.split() && layer.dim == 0 && (!has_sets || layer.factor > 0);
      if (!splits_a_set || inputs.back().placement != Placement::partial) return std::nullopt;
      for (const TypeOnAxis& other : inputs.first(inputs.size() - 1)) {
        if (other == layer) continue;
        throw DistributionError(
            fmt::format("a layer's probabilities are {}; expected {}", other.text(), layer.text()));
      }
      return std::vector<TypeOnAxis>{partial()};
    };
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() > (has_earlier_ ? 1 : 0),
                   "the probabilities of a layer are expected");
    const Spec result{shape_of_sums(sets_, inputs[0].shape[1]), DType::f64};
    TESSERA_EXPECT(*this, !has_earlier_ || is_like(inputs.back(), result),
                   "sums {} of earlier layers; expected {}", text_of(inputs.back()),
                   text_of(result));
    for (const Spec& layer : inputs.first(layers_in(inputs))) {
      TESSERA_EXPECT(*this, is_router_matrix(layer) && is_like(layer, inputs[0]),
                     "probabilities {} of a layer, the first are {}", text_of(layer),
                     text_of(inputs[0]));
    }
    TESSERA_EXPECT(*this, inputs[0].shape[0] % sets_.value_or(1) == 0, "{} tokens in {} sets",
                   inputs[0].shape[0], *sets_);
    return {result};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    if (!output_gradients[0]) return std::vector<Value>(self.inputs.size());
    const Value shared = builder.apply_single(
        std::make_shared<ProbabilitySumsGradient>(builder.spec(self.inputs[0]), sets_),
        {output_gradients[0]});
    std::vector<Value> result(self.inputs.size(), shared);
    // A copy, because the gradient may be an input of the program, and no program passes on one of
    // its inputs as an output.
    if (has_earlier_) {
      const Value copy = add(builder, output_gradients, DType::f64);
      result.back() = use_like(builder, copy, output_gradients[0]);
    }
    return result;
  }

  int64_t workspace_bytes(const Target& target, std::span<const Spec> inputs) const override {
    const auto layers = static_cast<int64_t>(layers_in(inputs));
    const Shape& shape = inputs[0].shape;
    if (target.device != Device::cpu) {
      return layers * probability_blocks(layers, shape[0]) * shape[1] * dtype_size(DType::f32);
    }
    return layers * sets() * blocks_of_set(shape[0]) * shape[1] * dtype_size(inputs[0].dtype);
  }

  void run(const Execution& execution) const override {
    if (execution.stream != nullptr) return run_on_device(execution);
    dispatch_wide(execution.inputs[0].dtype(), [&]<typename T>(T) { evaluate<T>(execution); });
  }

 private:
  /// The tokens of a block. The probabilities of a block are summed by one thread. The size is
  /// fixed, so the sum does not depend on the number of threads.
  static constexpr int64_t kBlockTokens = 256;
  int64_t sets() const { return sets_.value_or(1); }
  /// Returns the number of layers of these inputs, without the earlier ones.
  template <typename Input>
  size_t layers_in(std::span<const Input> inputs) const {
    return inputs.size() - (has_earlier_ ? 1 : 0);
  }
  /// Returns the number of blocks of a set, given the tokens of all sets.
  int64_t blocks_of_set(int64_t tokens) const {
    return (tokens / sets() + kBlockTokens - 1) / kBlockTokens;
  }

  void run_on_device(const Execution& execution) const {
    TESSERA_CHECK(sets() == 1, "the probabilities of {} sets on a device", sets());
    const Shape& shape = execution.inputs[0].shape();
    const std::span<const Tensor> probabilities =
        execution.inputs.first(layers_in(execution.inputs));
    BalanceLayers layers{
        .count = static_cast<int>(probabilities.size()), .tokens = shape[0], .experts = shape[1]};
    TESSERA_CHECK(layers.count <= BalanceLayers::kMostLayers,
                  "the probabilities of {} layers on a device", layers.count);
    for (size_t layer = 0; layer < probabilities.size(); ++layer) {
      layers.probabilities[layer] = probabilities[layer].pointer<float>();
    }
    const double* earlier = has_earlier_ ? execution.inputs.back().pointer<double>() : nullptr;
    for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
      probability_sums_device<Vendor>(layers, earlier,
                                      reinterpret_cast<float*>(execution.workspace.data()),
                                      execution.outputs[0].pointer<double>(), *execution.stream);
    });
  }

  /// Writes result[set, e] = earlier[set, e] + Σ_l Σ_{t in set} p_l[t, e]: first the sum of each
  /// block of tokens, in the probabilities' type, then the sum of the blocks of a set in f64.
  template <typename T>
  void evaluate(const Execution& execution) const {
    const Shape& shape = execution.inputs[0].shape();
    const int64_t tokens = shape[0] / sets();  // the tokens of a set
    const int64_t experts = shape[1];
    const int64_t set_blocks = blocks_of_set(shape[0]);
    const auto layer_count = static_cast<int64_t>(layers_in(execution.inputs));
    const int64_t all_blocks = layer_count * sets() * set_blocks;
    T* sums = reinterpret_cast<T*>(execution.workspace.data());  // [layers, sets, blocks, experts]
    parallel_each(execution.runtime.threads(), all_blocks, row_grain(kBlockTokens * experts),
                  [&](int64_t block) {
                    const int64_t layer_set = block / set_blocks;  // in [layers, sets]
                    const Tensor& layer = execution.inputs[static_cast<size_t>(layer_set / sets())];
                    const int64_t first_token = block % set_blocks * kBlockTokens;
                    const T* rows =
                        layer.data<T>() + (layer_set % sets() * tokens + first_token) * experts;
                    T* block_sums = sums + block * experts;
                    std::fill_n(block_sums, experts, T{0});
                    for (int64_t t = 0; t < std::min(kBlockTokens, tokens - first_token); ++t) {
#pragma omp simd
                      for (int64_t e = 0; e < experts; ++e) block_sums[e] += rows[t * experts + e];
                    }
                  });
    for (int64_t set = 0; set < sets(); ++set) {
      double* result = execution.outputs[0].data<double>() + set * experts;
      for (int64_t e = 0; e < experts; ++e) {
        double sum = has_earlier_ ? execution.inputs.back().data<double>()[set * experts + e] : 0;
        for (int64_t layer = 0; layer < layer_count; ++layer) {
          const T* block_sums = sums + (layer * sets() + set) * set_blocks * experts + e;
          for (int64_t block = 0; block < set_blocks; ++block) {
            sum += static_cast<double>(block_sums[block * experts]);
          }
        }
        result[e] = sum;
      }
    }
  }

  Sets sets_;
  bool has_earlier_;
};

}  // namespace

Value probability_sums(Builder& builder, std::span<const Value> probabilities,
                       std::optional<int64_t> sets, std::optional<Value> earlier) {
  std::vector<Value> inputs(probabilities.begin(), probabilities.end());
  if (earlier) inputs.push_back(*earlier);
  return builder.apply_single(std::make_shared<ProbabilitySums>(sets, earlier.has_value()),
                              std::move(inputs));
}

}  // namespace tessera
