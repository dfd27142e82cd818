#include <fmt/format.h>

#include "comm/piece_indices.h"
#include "ops/labels.h"
#include "ops/router/losses.h"
#include "ops/router/processor_rows.h"
#include "ops/router/router_kernels.h"
#include "ops/router/split_tokens.h"

namespace tessera {
namespace {

// A loss is probability_sums(), their sum over the ranks, and LoadBalanceLoss, which multiplies the
// sums by the counts. losses.h has the formulas. Of earlier layers there is one sum of counts,
// which stands before the counts of this program's layers: so all are added in the order of the
// layers.

/// The numbers that LoadBalanceLoss and its gradient share. E is the number of experts.
struct Balance {
  double scale = 0;    ///< coefficient · E; for per_layer divided by k
  int64_t layers = 1;  ///< L
  int64_t tokens = 0;  ///< T, the tokens of a set
  DType dtype = DType::f32;

  /// Returns f_e, the choices of expert e per token, over all layers. With several sets, `expert`
  /// is an index into the elements of [sets, experts].
  double fraction(std::span<const Tensor> counts, int64_t expert) const {
    if (tokens == 0) return 0;
    double sum = 0;
    for (const Tensor& layer : counts) {
      sum += layer.dtype() == DType::i32 ? layer.data<int32_t>()[expert]
                                         : layer.data<double>()[expert];
    }
    return sum / static_cast<double>(layers * tokens);
  }

  /// Returns the factor of Σ_e (Σ_l counts_le) (Σ_lt p_lte) in the loss.
  double sums_factor() const {
    if (tokens == 0) return 0;
    const auto layer_count = static_cast<double>(layers);
    return scale / (layer_count * static_cast<double>(tokens)) / layer_count;
  }
};

/// Returns the layers' counts in the form that the kernels of a device take: of one set of tokens.
BalanceLayers layers_on_device(std::span<const Tensor> counts) {
  BalanceLayers layers{.counts_are_means = counts[0].dtype() == DType::f64,
                       .count = static_cast<int>(counts.size()),
                       .experts = counts[0].elements()};
  TESSERA_CHECK(counts[0].shape().rank() == 1, "a load-balance loss of several sets on a device");
  TESSERA_CHECK(layers.count <= BalanceLayers::kMostLayers && layers.experts <= kMostDeviceExperts,
                "a load-balance loss of {} layers of {} experts; a device takes up to {} of {}",
                layers.count, layers.experts, BalanceLayers::kMostLayers, kMostDeviceExperts);
  for (size_t layer = 0; layer < counts.size(); ++layer) {
    layers.counts[layer] = counts[layer].address();
  }
  return layers;
}

/// Returns the labels of sums and counts, of one set of tokens or of several.
std::string_view set_labels(const Spec& counts) { return counts.shape.rank() == 1 ? "E!" : "s E!"; }

/// inputs: the gradient of the loss [1], then counts, [experts] or [sets, experts] each; output:
/// the gradient of the sums of probabilities, f64 of the same shape.
class LoadBalanceGradient final : public Operation {
 public:
  explicit LoadBalanceGradient(const Balance& balance) : balance_(balance) {}
  std::string_view name() const override { return "load_balance_gradient"; }

  std::string labels(std::span<const Spec> inputs) const override {
    return "~u!, " + repeated(set_labels(inputs[1]), inputs.size() - 1) +
           (inputs[1].shape.rank() == 1 ? " -> E" : " -> s E");
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() >= 2 && inputs[0].shape == Shape({1}),
                   "the gradient of a scalar and counts are expected");
    return {{inputs[1].shape, DType::f64}};
  }

  void run(const Execution& execution) const override {
    const Tensor& result = execution.outputs[0];
    const std::span<const Tensor> counts = execution.inputs.subspan(1);
    if (execution.stream != nullptr) {
      return for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
        load_balance_gradient_device<Vendor>(layers_on_device(counts), balance_.sums_factor(),
                                             execution.inputs[0].pointer<float>(),
                                             result.pointer<double>(), *execution.stream);
      });
    }
    dispatch_wide(execution.inputs[0].dtype(), [&]<typename T>(T) {
      const auto loss_gradient = static_cast<double>(execution.inputs[0].data<T>()[0]);
      for (int64_t e = 0; e < result.elements(); ++e) {
        result.data<double>()[e] = loss_gradient * balance_.scale * balance_.fraction(counts, e) /
                                   static_cast<double>(balance_.layers);
      }
    });
  }

 private:
  Balance balance_;
};

/// inputs: the sums of probabilities f64 [experts] or [sets, experts], then counts of the same
/// shape, i32 or f64; output [1].
class LoadBalanceLoss final : public Operation {
 public:
  explicit LoadBalanceLoss(const Balance& balance) : balance_(balance) {}
  std::string_view name() const override { return "load_balance_loss"; }

  std::string labels(std::span<const Spec> inputs) const override {
    const std::string_view labels = set_labels(inputs[0]);
    return fmt::format("~{}, {} -> u", labels, repeated(labels, inputs.size() - 1));
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() >= 2, "sums and counts are expected");
    TESSERA_EXPECT(*this,
                   inputs[0].dtype == DType::f64 &&
                       (inputs[0].shape.rank() == 1 || inputs[0].shape.rank() == 2),
                   "sums {}", text_of(inputs[0]));
    for (const Spec& counts : inputs.subspan(1)) {
      TESSERA_EXPECT(*this,
                     (counts.dtype == DType::i32 || counts.dtype == DType::f64) &&
                         counts.dtype == inputs[1].dtype && counts.shape == inputs[0].shape,
                     "counts {} for sums {}", text_of(counts), inputs[0].shape.text());
    }
    return {{{1}, balance_.dtype}};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    std::vector<Value> result(self.inputs.size());
    if (!output_gradients[0]) return result;
    std::vector<Value> inputs = self.inputs;
    inputs[0] = output_gradients[0];
    result[0] = builder.apply_single(std::make_shared<LoadBalanceGradient>(balance_), inputs);
    return result;
  }

  void run(const Execution& execution) const override {
    const Tensor& sums = execution.inputs[0];
    const std::span<const Tensor> counts = execution.inputs.subspan(1);
    if (execution.stream != nullptr) {
      return for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
        load_balance_loss_device<Vendor>(layers_on_device(counts), balance_.sums_factor(),
                                         sums.pointer<double>(),
                                         execution.outputs[0].pointer<float>(), *execution.stream);
      });
    }
    double total = 0;  // Σ_e f_e Σ_lt p_lte
    for (int64_t e = 0; e < sums.elements(); ++e) {
      total += balance_.fraction(counts, e) * sums.data<double>()[e];
    }
    dispatch_wide(execution.outputs[0].dtype(), [&]<typename T>(T) {
      execution.outputs[0].data<T>()[0] =
          static_cast<T>(balance_.scale * total / static_cast<double>(balance_.layers));
    });
  }

 private:
  Balance balance_;
};

/// inputs: counts of layers, i32 or f64, [experts] or [sets, experts] each; output: their sum.
class SumOfCounts final : public Operation {
 public:
  std::string_view name() const override { return "sum_of_counts"; }

  std::string labels(std::span<const Spec> inputs) const override {
    return inputs[0].shape.rank() == 1 ? repeated("~E", inputs.size(), " + ") + " -> E"
                                       : repeated("~s E", inputs.size(), " + ") + " -> s E";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, !inputs.empty(), "the counts of a layer are expected");
    for (const Spec& counts : inputs) {
      TESSERA_EXPECT(
          *this,
          (counts.dtype == DType::i32 || counts.dtype == DType::f64) && is_like(counts, inputs[0]),
          "counts {} of a layer, the first are {}", text_of(counts), text_of(inputs[0]));
    }
    return {{inputs[0].shape, inputs[0].dtype}};
  }

  void run(const Execution& execution) const override {
    const Tensor& sums = execution.outputs[0];
    if (execution.stream != nullptr) {
      return for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
        sum_of_counts_device<Vendor>(layers_on_device(execution.inputs), sums.address(),
                                     *execution.stream);
      });
    }
    sums.dtype() == DType::i32 ? add_all<int32_t>(execution.inputs, sums)
                               : add_all<double>(execution.inputs, sums);
  }

 private:
  template <typename T>
  static void add_all(std::span<const Tensor> counts, const Tensor& sums) {
    for (int64_t e = 0; e < sums.elements(); ++e) {
      T sum = 0;
      for (const Tensor& layer : counts) sum += layer.data<T>()[e];
      sums.data<T>()[e] = sum;
    }
  }
};

/// Returns the number of a rank's sets of tokens, or none if all ranks share one (losses.h).
std::optional<int64_t> sets_of(const Builder& builder, Value counts) {
  const Shape& shape = builder.spec(counts).shape;
  return shape.rank() == 2 ? std::optional(shape[0]) : std::nullopt;
}

/// Returns counts in the order in which they are added: of earlier layers, then of each layer.
std::vector<Value> with_earlier(std::span<const Value> counts, const EarlierLayers& earlier) {
  std::vector<Value> all;
  if (earlier.layers > 0) all.push_back(earlier.counts);
  all.insert(all.end(), counts.begin(), counts.end());
  return all;
}

/// Returns probability_sums() of the earlier layers and these.
Value sums_with_earlier(Builder& builder, std::span<const Value> probabilities,
                        std::optional<int64_t> sets, const EarlierLayers& earlier) {
  const auto before = earlier.layers > 0 ? std::optional(earlier.probability_sums) : std::nullopt;
  return probability_sums(builder, probabilities, sets, before);
}

}  // namespace

Value sum_of_counts(Builder& builder, std::span<const Value> counts) {
  return builder.apply_single(std::make_shared<SumOfCounts>(), {counts.begin(), counts.end()});
}

EarlierLayers layers_so_far(Builder& builder, std::span<const Value> probabilities,
                            std::span<const Value> counts, const EarlierLayers& earlier) {
  return {.layers = earlier.layers + std::ssize(probabilities),
          .probability_sums =
              sums_with_earlier(builder, probabilities, sets_of(builder, counts[0]), earlier),
          .counts = sum_of_counts(builder, with_earlier(counts, earlier))};
}

Value load_balance_loss(Builder& builder, std::span<const Value> probabilities,
                        std::span<const Value> counts, double coefficient, int64_t k,
                        BalanceForm form, const EarlierLayers& earlier) {
  const int64_t layers = earlier.layers + std::ssize(probabilities);
  TESSERA_CHECK(form == BalanceForm::pooled || layers == 1,
                "a load-balance loss of {} layers in the form of one", layers);
  TESSERA_CHECK(counts.size() == probabilities.size(), "the counts of {} layers; expected {}",
                counts.size(), probabilities.size());
  const Program& program = builder.program();
  const Spec spec = builder.spec(probabilities[0]);
  const std::optional<int64_t> sets = sets_of(builder, counts[0]);
  const auto experts = static_cast<double>(spec.shape[1]);
  const Balance balance{
      .scale =
          (form == BalanceForm::per_layer ? coefficient / static_cast<double>(k) : coefficient) *
          experts,
      .layers = layers,
      .tokens = sets ? tokens_of_set(program.mesh(), spec, *sets)
                     : logical_extent(program.mesh(), spec.distribution, 0, spec.shape[0]),
      .dtype = spec.dtype};
  const Value sums = sums_with_earlier(builder, probabilities, sets, earlier);
  // On an axis that splits the sets, ranks have different sets, so nothing is summed.
  std::vector<Value> inputs{
      sets ? sum_of_ranks(builder, sums, {Placement::invariant, Placement::sharded})
           : sum_of_ranks(builder, sums, {Placement::invariant})};
  const std::vector<Value> all_counts = with_earlier(counts, earlier);
  inputs.insert(inputs.end(), all_counts.begin(), all_counts.end());
  return builder.apply_single(std::make_shared<LoadBalanceLoss>(balance), std::move(inputs));
}

}  // namespace tessera
