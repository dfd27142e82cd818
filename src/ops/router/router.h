#pragma once

#include <optional>

#include "program/builder.h"

namespace tessera {

/// Returns the softmax over the experts for each token, the router's probabilities. logits and
/// result are [tokens, experts] in f32 or f64.
Value router_softmax(Builder& builder, Value logits);

/// The options of the choice of a token's experts and of their weights.
struct TopKOptions {
  int64_t k = 1;             ///< chosen experts per token
  bool renormalise = false;  ///< divides the weights of a token by their sum (Mixtral)
  /// Forced uniform routing (Optimus §2.3), for measuring a balanced load. The j-th choice of token
  /// t is expert (t k + j) mod experts, whatever the probabilities are. The weights are still the
  /// probabilities. If ranks have different tokens, t counts the tokens of all ranks.
  bool forced_uniform = false;
};

/// A token's chosen experts and their weights.
struct RouterSelection {
  Value weights;  ///< [tokens, k], in the probabilities' type and in the order of `indices`
  /// i32 [tokens, k]: the chosen experts, in the order of the choice. Those of one token are all
  /// different, unless pinned choices are not.
  Value indices;
};

/// Chooses the k most probable experts of each token, the most probable first. Their weights are
/// the probabilities, which are [tokens, experts] in f32 or f64. Among equals the lower index comes
/// first. A NaN counts as -inf, so the choice is always defined. The weights' gradient flows to the
/// probabilities, through the quotient if the weights are renormalised. The choice has no gradient.
///
/// If `biases` are given, [experts] in the probabilities' type, the choice is by probability plus
/// bias, unless it is forced or pinned. The biases change no weights and have no gradient.
///
/// If `pinned` is given, i32 [tokens, k], it is the choice, whatever probabilities and options say.
/// It serves to compare two runs that round differently, and to measure a given load.
RouterSelection router_top_k(Builder& builder, Value probabilities, const TopKOptions& options,
                             std::optional<Value> pinned = {}, std::optional<Value> biases = {});

}  // namespace tessera
