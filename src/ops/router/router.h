#pragma once

#include <optional>

#include "program/builder.h"

namespace tessera {

/// Computes the softmax over the experts of each token. logits and result are [tokens, experts] in
/// f32 or f64.
Value router_softmax(Builder& builder, Value logits);

/// The options of the choice of a token's experts and of their weights.
struct TopKOptions {
  int64_t k = 1;             ///< experts per token, at most all of them
  bool renormalise = false;  ///< divide the chosen weights by their sum (Mixtral)
  /// Forced uniform routing (Optimus §2.3), for measuring a balanced load. The j-th choice of token
  /// t is expert (t k + j) mod experts, whatever the probabilities are. The weights are still the
  /// probabilities. If ranks have different tokens, t counts the tokens of all ranks.
  bool forced_uniform = false;
};

/// A token's chosen experts and their weights.
struct RouterSelection {
  /// [tokens, k], in the probabilities' type, largest first unless forced or pinned
  Value weights;
  Value indices;  ///< i32 [tokens, k], the chosen experts, all different for one token
};

/// Chooses the k most probable experts of each token. probabilities are [tokens, experts] in f32
/// or f64. Among equals the lower index wins. A NaN counts as -inf, so the choice is always
/// defined. The weights' gradient flows to the probabilities, through the quotient
/// if the weights are renormalised. The choice itself has no gradient.
///
/// If `biases` are given, [experts] in the probabilities' type, the choice is by probability plus
/// bias. The weights are still the probabilities alone. The biases have no gradient.
///
/// If `pinned` is given, i32 [tokens, k], it is the choice, whatever the probabilities are. It
/// serves to compare two runs that round differently, and to measure a chosen load.
RouterSelection router_top_k(Builder& builder, Value probabilities, const TopKOptions& options,
                             std::optional<Value> pinned = {}, std::optional<Value> biases = {});

}  // namespace tessera
