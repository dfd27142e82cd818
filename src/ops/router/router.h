#pragma once

#include "program/builder.h"

namespace tessera {

/// Softmax over the experts of each token: logits and result [tokens, experts], f32 (or f64).
Value router_softmax(Builder& builder, Value logits);

/// How a token's experts are chosen and weighed.
struct TopKOptions {
  int64_t k = 1;             ///< experts a token, at most all of them
  bool renormalise = false;  ///< divide the chosen weights by their sum (Mixtral)
  /// Forced uniform routing (Optimus §2.3), for measuring a balanced load: the j-th choice of token
  /// t is expert (t k + j) mod experts, whatever the probabilities, which still give the weights.
  bool forced_uniform = false;
};

/// A token's chosen experts and their weights.
struct RouterSelection {
  Value weights;  ///< [tokens, k], of the probabilities' type, largest first unless forced
  Value indices;  ///< i32 [tokens, k], the chosen experts, different ones for one token
};

/// The k most probable experts of each token: probabilities [tokens, experts], f32 (or f64). Of
/// equals the lower index wins; a NaN counts as smaller than any number, so that the choice is
/// always defined. The weights' gradient flows to the probabilities, through the renormalising
/// quotient where there is one; the choice itself has none.
RouterSelection router_top_k(Builder& builder, Value probabilities, const TopKOptions& options);

}  // namespace tessera
