#include <algorithm>
#include <cmath>
#include <limits>

#include "comm/piece_indices.h"
#include "ops/router/processor_rows.h"
#include "ops/router/router.h"
#include "ops/router/router_kernels.h"
#include "ops/router/split_tokens.h"

namespace tessera {
namespace {

// There are three ways to choose a token's experts: by probability, to which biases may be added;
// as the caller says (pinned); or by the index of the token (forced uniform routing). First come
// the kernels for one token: the choice by probability, the weights of the chosen experts, and the
// gradient of these weights. Each computes in a fixed order and serves as the plain and as the fast
// kernel. Then come the operations.

/// Writes the indices of the k largest probabilities to `chosen`, largest first. Biases, unless
/// null, are added before the comparison. Among equals the lower index comes first. A NaN counts as
/// -inf. The experts are inserted one by one into `chosen`, which stays sorted.
template <typename T>
void choose_experts(const T* probabilities, const T* biases, int64_t experts, int64_t k,
                    int32_t* chosen) {
  const auto score_of = [=](int64_t expert) {
    const T probability = probabilities[expert] + (biases != nullptr ? biases[expert] : T{0});
    return std::isnan(probability) ? -std::numeric_limits<T>::infinity() : probability;
  };
  for (int64_t expert = 0; expert < experts; ++expert) {
    const T candidate = score_of(expert);
    int64_t slot = std::min(expert, k);
    while (slot > 0 && candidate > score_of(chosen[slot - 1])) {
      if (slot < k) chosen[slot] = chosen[slot - 1];
      --slot;
    }
    if (slot < k) chosen[slot] = static_cast<int32_t>(expert);
  }
}

template <typename T>
T chosen_sum(const T* probabilities, const int32_t* chosen, int64_t k) {
  T sum = 0;
  for (int64_t j = 0; j < k; ++j) sum += probabilities[chosen[j]];
  return sum;
}

/// Writes the weights of a token's chosen experts: p_j, or if renormalised p_j / Σ_i p_i over them.
template <typename T>
void weigh_chosen(const RouterChoice<T>& choice, int64_t token) {
  const T* probabilities = choice.probabilities + token * choice.experts;
  const int32_t* chosen = choice.indices + token * choice.k;
  const T divisor = choice.renormalise ? chosen_sum(probabilities, chosen, choice.k) : T{1};
  for (int64_t j = 0; j < choice.k; ++j) {
    choice.weights[token * choice.k + j] = probabilities[chosen[j]] / divisor;
  }
}

/// Computes the gradient of weigh_chosen(), with g = weights_gradient. It is zero for experts that
/// are not chosen, and g_j for the j-th chosen one. For renormalised weights w = p / s, where s is
/// the sum of the chosen p, it is (g_j − Σ_i g_i w_i) / s.
template <typename T>
void weigh_chosen_gradient(const RouterChoiceGradient<T>& gradient, int64_t token) {
  const int64_t k = gradient.k;
  const T* probabilities = gradient.probabilities + token * gradient.experts;
  const int32_t* chosen = gradient.indices + token * k;
  const T* weights_gradient = gradient.weights_gradient + token * k;
  T* probabilities_gradient = gradient.probabilities_gradient + token * gradient.experts;
  std::fill_n(probabilities_gradient, gradient.experts, T{0});
  T divisor = 1;
  T mean_gradient = 0;  // Σ_i g_i w_i
  if (gradient.renormalise) {
    divisor = chosen_sum(probabilities, chosen, k);
    for (int64_t j = 0; j < k; ++j) {
      mean_gradient += weights_gradient[j] * probabilities[chosen[j]] / divisor;
    }
  }
  for (int64_t j = 0; j < k; ++j) {
    probabilities_gradient[chosen[j]] = (weights_gradient[j] - mean_gradient) / divisor;
  }
}

/// inputs: probabilities [tokens, experts], indices i32 [tokens, k], the gradient of the weights
/// [tokens, k]; output: the gradient of the probabilities.
class RouterTopKGradient final : public Operation {
 public:
  explicit RouterTopKGradient(bool renormalise) : renormalise_(renormalise) {}
  std::string_view name() const override { return "router_top_k_gradient"; }

  std::string labels(std::span<const Spec>) const override { return "n E!, n k!, ~n k! -> n E"; }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(*this, inputs.size() == 3 && is_router_matrix(inputs[0]),
                   "probabilities, indices and a gradient are expected");
    TESSERA_EXPECT(*this,
                   inputs[1].dtype == DType::i32 && inputs[1].shape == inputs[2].shape &&
                       inputs[2].dtype == inputs[0].dtype &&
                       inputs[1].shape[0] == inputs[0].shape[0],
                   "indices {} and a gradient {} for probabilities {}", inputs[1].shape.text(),
                   text_of(inputs[2]), text_of(inputs[0]));
    return {inputs[0]};
  }

  void run(const Execution& execution) const override {
    const std::span<const Tensor> inputs = execution.inputs;
    const auto arguments = [&]<typename T>(T) -> RouterChoiceGradient<T> {
      return {.tokens = inputs[0].shape()[0],
              .experts = inputs[0].shape()[1],
              .k = inputs[1].shape()[1],
              .renormalise = renormalise_,
              .probabilities = inputs[0].pointer<T>(),
              .indices = inputs[1].pointer<int32_t>(),
              .weights_gradient = inputs[2].pointer<T>(),
              .probabilities_gradient = execution.outputs[0].pointer<T>()};
    };
    run_wide_kernel(
        execution, inputs[0].dtype(), arguments,
        [&]<typename Vendor>(Vendor, const auto& gradient) {
          router_top_k_gradient_device<Vendor>(gradient, *execution.stream);
        },
        [&](const auto& gradient) {
          // The loops over choices do not vectorise, so a choice counts as 8 vectorised operations.
          for_each_token(execution, gradient.tokens, gradient.experts + 8 * gradient.k,
                         [&](int64_t t) { weigh_chosen_gradient(gradient, t); });
        });
  }

 private:
  bool renormalise_;
};

/// The tokens for which forced routing chooses experts on this rank.
struct ForcedTokens {
  bool split = false;  ///< whether any axis splits the tokens, even an axis of one rank
  /// The indices of this rank's tokens among all tokens. The list is empty if it has all tokens.
  std::vector<int64_t> indices;
};

/// inputs: probabilities [tokens, experts], then for Extra::pinned the choices i32 [tokens, k], or
/// for Extra::biases the biases [experts]; outputs: weights [tokens, k], indices i32 [tokens, k].
class RouterTopK final : public Operation {
 public:
  /// The second input: it replaces the choice by probability (pinned) or changes it (biases).
  enum class Extra { none, pinned, biases };

  RouterTopK(const TopKOptions& options, ForcedTokens tokens, Extra extra)
      : options_(options), tokens_(std::move(tokens)), extra_(extra) {}
  std::string_view name() const override { return "router_top_k"; }

  /// Returns labels that let the tokens be split. Forced routing needs the tokens' indices among
  /// the tokens of all ranks, so it lets them be split only if ForcedTokens knows that they are.
  std::string labels(std::span<const Spec>) const override {
    if (extra_ == Extra::pinned) return "n E!, n k! -> n k, n k";
    if (extra_ == Extra::biases) return "n E!, E! -> n k, n k";
    return options_.forced_uniform && !tokens_.split ? "n! E! -> n k, n k" : "n E! -> n k, n k";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(
        *this, inputs.size() == (extra_ == Extra::none ? 1 : 2) && is_router_matrix(inputs[0]),
        "an f32 or f64 matrix [tokens, experts] is expected, and pinned choices or biases at most");
    const Spec& probabilities = inputs[0];
    TESSERA_EXPECT(*this, options_.k >= 1 && options_.k <= probabilities.shape[1],
                   "{} of {} experts a token", options_.k, probabilities.shape[1]);
    const Shape chosen = probabilities.shape.with_dim(1, options_.k);
    TESSERA_EXPECT(*this, extra_ != Extra::pinned || is_like(inputs.back(), {chosen, DType::i32}),
                   "pinned choices {}, not i32 {}", text_of(inputs.back()), chosen.text());
    TESSERA_EXPECT(*this,
                   extra_ != Extra::biases ||
                       is_like(inputs.back(), {{probabilities.shape[1]}, probabilities.dtype}),
                   "biases {}, not {} [{}]", text_of(inputs.back()),
                   dtype_name(probabilities.dtype), probabilities.shape[1]);
    return {{chosen, probabilities.dtype}, {chosen, DType::i32}};
  }

  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    std::vector<Value> gradients(self.inputs.size());
    if (!output_gradients[0]) return gradients;
    gradients[0] = builder.apply_single(std::make_shared<RouterTopKGradient>(options_.renormalise),
                                        {self.inputs[0], self.outputs[1], output_gradients[0]});
    return gradients;
  }

  void require_runnable(Runtime& runtime, std::span<const Spec>) const override {
    if (runtime.accelerator() == nullptr || tokens_.indices.empty()) return;
    throw Error(
        "model.forced_uniform_routing with tokens of several ranks runs on the processor "
        "only; set it to false or run.device = \"cpu\"");
  }

  void run(const Execution& execution) const override {
    const std::span<const Tensor> inputs = execution.inputs;
    const auto arguments = [&]<typename T>(T) -> RouterChoice<T> {
      return {.tokens = inputs[0].shape()[0],
              .experts = inputs[0].shape()[1],
              .k = options_.k,
              .renormalise = options_.renormalise,
              .forced_uniform = options_.forced_uniform,
              .probabilities = inputs[0].pointer<T>(),
              .pinned = extra_ == Extra::pinned ? inputs[1].pointer<int32_t>() : nullptr,
              .biases = extra_ == Extra::biases ? inputs[1].pointer<T>() : nullptr,
              .weights = execution.outputs[0].pointer<T>(),
              .indices = execution.outputs[1].pointer<int32_t>()};
    };
    run_wide_kernel(
        execution, inputs[0].dtype(), arguments,
        [&]<typename Vendor>(Vendor, const auto& choice) {
          router_top_k_device<Vendor>(choice, *execution.stream);
        },
        [&](const auto& choice) {
          if (extra_ == Extra::pinned) execution.outputs[1].copy_from(inputs[1]);
          // The insertion does not vectorise either: an expert counts as 16 vectorised operations.
          for_each_token(execution, choice.tokens, 16 * choice.experts, [&](int64_t t) {
            if (extra_ != Extra::pinned) choose(choice, t);
            weigh_chosen(choice, t);
          });
        });
  }

 private:
  /// Chooses the experts of one of this rank's tokens.
  template <typename T>
  void choose(const RouterChoice<T>& choice, int64_t token) const {
    int32_t* chosen = choice.indices + token * choice.k;
    if (!options_.forced_uniform) {
      return choose_experts(choice.probabilities + token * choice.experts, choice.biases,
                            choice.experts, choice.k, chosen);
    }
    if (!tokens_.indices.empty()) token = tokens_.indices[static_cast<size_t>(token)];
    for (int64_t j = 0; j < choice.k; ++j) {
      chosen[j] = static_cast<int32_t>((token * choice.k + j) % choice.experts);
    }
  }

  TopKOptions options_;
  ForcedTokens tokens_;
  Extra extra_;
};

/// Returns the tokens to which this rank's probabilities belong.
ForcedTokens forced_tokens(const Program& program, const Spec& probabilities) {
  if (!splits_tokens(program.mesh(), probabilities)) return {};
  const int64_t all =
      logical_extent(program.mesh(), probabilities.distribution, 0, probabilities.shape[0]);
  if (all == probabilities.shape[0]) return {.split = true};
  return {
      .split = true,
      .indices = piece_of_dim(program.mesh(), probabilities.distribution, 0, all, program.rank())};
}

}  // namespace

RouterSelection router_top_k(Builder& builder, Value probabilities, const TopKOptions& options,
                             std::optional<Value> pinned, std::optional<Value> biases) {
  using Extra = RouterTopK::Extra;
  // Biases have no effect on a choice that is given or forced.
  const Extra extra = pinned                              ? Extra::pinned
                      : biases && !options.forced_uniform ? Extra::biases
                                                          : Extra::none;
  ForcedTokens tokens;
  if (options.forced_uniform) {
    tokens = forced_tokens(builder.program(), builder.spec(probabilities));
  }
  std::vector<Value> inputs{probabilities};
  if (extra != Extra::none) inputs.push_back(extra == Extra::pinned ? *pinned : *biases);
  const std::vector<Value> outputs = builder.apply(
      std::make_shared<RouterTopK>(options, std::move(tokens), extra), std::move(inputs));
  return {outputs[0], outputs[1]};
}

}  // namespace tessera
