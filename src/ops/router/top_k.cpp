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
  const auto rank_of = [=](int64_t expert) {
    const T probability = probabilities[expert] + (biases != nullptr ? biases[expert] : T{0});
    return std::isnan(probability) ? -std::numeric_limits<T>::infinity() : probability;
  };
  for (int64_t expert = 0; expert < experts; ++expert) {
    const T candidate = rank_of(expert);
    int64_t slot = std::min(expert, k);
    while (slot > 0 && candidate > rank_of(chosen[slot - 1])) {
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

/// Computes weights_j = p_j, or p_j / Σ_i p_i over the chosen experts if `renormalise`.
template <typename T>
void chosen_weights(const T* probabilities, const int32_t* chosen, int64_t k, bool renormalise,
                    T* weights) {
  const T divisor = renormalise ? chosen_sum(probabilities, chosen, k) : T{1};
  for (int64_t j = 0; j < k; ++j) weights[j] = probabilities[chosen[j]] / divisor;
}

/// Computes the gradient of chosen_weights(), with g = weights_gradient. It is zero for experts
/// that are not chosen, and g_j for the j-th chosen one. For renormalised weights w = p / s, where
/// s is the sum of the chosen p, it is (g_j − Σ_i g_i w_i) / s.
template <typename T>
void chosen_weights_gradient(const T* probabilities, const int32_t* chosen,
                             const T* weights_gradient, int64_t experts, int64_t k,
                             bool renormalise, T* probabilities_gradient) {
  std::fill_n(probabilities_gradient, experts, T{0});
  T divisor = 1;
  T mean_gradient = 0;  // Σ_i g_i w_i
  if (renormalise) {
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
    if (execution.stream != nullptr) return run_on_device(execution);
    const Tensor& result = execution.outputs[0];
    const int64_t experts = result.shape()[1];
    const int64_t k = execution.inputs[1].shape()[1];
    const int32_t* chosen = execution.inputs[1].data<int32_t>();
    dispatch_wide(result.dtype(), [&]<typename T>(T) {
      const T* probabilities = execution.inputs[0].data<T>();
      const T* weights_gradient = execution.inputs[2].data<T>();
      T* probabilities_gradient = result.data<T>();
      // The loops over choices do not vectorise, so a choice counts as 8 vectorised operations.
      for_each_token(execution, result.shape()[0], experts + 8 * k, [&](int64_t t) {
        chosen_weights_gradient(probabilities + t * experts, chosen + t * k,
                                weights_gradient + t * k, experts, k, renormalise_,
                                probabilities_gradient + t * experts);
      });
    });
  }

 private:
  void run_on_device(const Execution& execution) const {
    const Shape& shape = execution.inputs[0].shape();
    const RouterChoiceGradient gradient{
        .tokens = shape[0],
        .experts = shape[1],
        .k = execution.inputs[1].shape()[1],
        .renormalise = renormalise_,
        .probabilities = execution.inputs[0].pointer<float>(),
        .indices = execution.inputs[1].pointer<int32_t>(),
        .weights_gradient = execution.inputs[2].pointer<float>(),
        .probabilities_gradient = execution.outputs[0].pointer<float>()};
    for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
      router_top_k_gradient_device<Vendor>(gradient, *execution.stream);
    });
  }

  bool renormalise_;
};

/// The tokens for which forced routing chooses experts on this rank.
struct ForcedTokens {
  bool split = false;  ///< whether any axis splits the tokens, even an axis of one rank
  /// The indices of this rank's tokens among all tokens. The list is empty if it has all tokens.
  std::vector<int64_t> indices;
};

/// inputs: probabilities [tokens, experts], then with By::pinned the choices i32 [tokens, k], and
/// with By::biases the biases [experts]; outputs: weights [tokens, k], indices i32 [tokens, k].
class RouterTopK final : public Operation {
 public:
  /// The second input, which replaces the choice by probability (pinned) or changes it (biases).
  enum class By { nothing, pinned, biases };

  RouterTopK(const TopKOptions& options, ForcedTokens tokens, By by)
      : options_(options), tokens_(std::move(tokens)), by_(by) {}
  std::string_view name() const override { return "router_top_k"; }

  /// Returns labels that let the tokens be split. Forced routing needs the tokens' indices among
  /// the tokens of all ranks, so it lets them be split only if ForcedTokens knows that they are.
  std::string labels(std::span<const Spec>) const override {
    if (by_ == By::pinned) return "n E!, n k! -> n k, n k";
    if (by_ == By::biases) return "n E!, E! -> n k, n k";
    return options_.forced_uniform && !tokens_.split ? "n! E! -> n k, n k" : "n E! -> n k, n k";
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    TESSERA_EXPECT(
        *this, inputs.size() == (by_ == By::nothing ? 1 : 2) && is_router_matrix(inputs[0]),
        "an f32 or f64 matrix [tokens, experts] is expected, and pinned choices or biases at most");
    const Spec& probabilities = inputs[0];
    TESSERA_EXPECT(*this, options_.k >= 1 && options_.k <= probabilities.shape[1],
                   "{} of {} experts a token", options_.k, probabilities.shape[1]);
    const Shape chosen = probabilities.shape.with_dim(1, options_.k);
    TESSERA_EXPECT(*this, by_ != By::pinned || is_like(inputs.back(), {chosen, DType::i32}),
                   "pinned choices {}, not i32 {}", text_of(inputs.back()), chosen.text());
    TESSERA_EXPECT(*this,
                   by_ != By::biases ||
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
    if (execution.stream != nullptr) return run_on_device(execution);
    const Shape& shape = execution.inputs[0].shape();
    dispatch_wide(execution.inputs[0].dtype(), [&]<typename T>(T) {
      const T* probabilities = execution.inputs[0].data<T>();
      T* weights = execution.outputs[0].data<T>();
      int32_t* indices = execution.outputs[1].data<int32_t>();
      if (by_ == By::pinned) execution.outputs[1].copy_from(execution.inputs[1]);
      const T* biases = by_ == By::biases ? execution.inputs[1].data<T>() : nullptr;
      // The insertion does not vectorise either: an expert counts as 16 vectorised operations.
      for_each_token(execution, shape[0], 16 * shape[1], [&](int64_t t) {
        const T* row = probabilities + t * shape[1];
        int32_t* chosen = indices + t * options_.k;
        if (by_ != By::pinned) choose(row, biases, t, shape[1], chosen);
        chosen_weights(row, chosen, options_.k, options_.renormalise, weights + t * options_.k);
      });
    });
  }

 private:
  void run_on_device(const Execution& execution) const {
    const Shape& shape = execution.inputs[0].shape();
    const RouterChoice choice{
        .tokens = shape[0],
        .experts = shape[1],
        .k = options_.k,
        .renormalise = options_.renormalise,
        .forced_uniform = options_.forced_uniform,
        .probabilities = execution.inputs[0].pointer<float>(),
        .pinned = by_ == By::pinned ? execution.inputs[1].pointer<int32_t>() : nullptr,
        .biases = by_ == By::biases ? execution.inputs[1].pointer<float>() : nullptr,
        .weights = execution.outputs[0].pointer<float>(),
        .indices = execution.outputs[1].pointer<int32_t>()};
    for_vendor(*execution.stream, [&]<typename Vendor>(Vendor) {
      router_top_k_device<Vendor>(choice, *execution.stream);
    });
  }

  /// Chooses the experts of one of this rank's tokens.
  template <typename T>
  void choose(const T* probabilities, const T* biases, int64_t token, int64_t experts,
              int32_t* chosen) const {
    const int64_t k = options_.k;
    if (options_.forced_uniform) {
      if (!tokens_.indices.empty()) token = tokens_.indices[static_cast<size_t>(token)];
      for (int64_t j = 0; j < k; ++j) chosen[j] = static_cast<int32_t>((token * k + j) % experts);
    } else {
      choose_experts(probabilities, biases, experts, k, chosen);
    }
  }

  TopKOptions options_;
  ForcedTokens tokens_;
  By by_;
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
  using By = RouterTopK::By;
  // Biases have no effect on a choice that is given or forced.
  const By by = pinned ? By::pinned : biases && !options.forced_uniform ? By::biases : By::nothing;
  ForcedTokens tokens;
  if (options.forced_uniform) {
    tokens = forced_tokens(builder.program(), builder.spec(probabilities));
  }
  std::vector<Value> inputs{probabilities};
  if (by != By::nothing) inputs.push_back(by == By::pinned ? *pinned : *biases);
  const std::vector<Value> outputs = builder.apply(
      std::make_shared<RouterTopK>(options, std::move(tokens), by), std::move(inputs));
  return {outputs[0], outputs[1]};
}

}  // namespace tessera
