#pragma once

#include <optional>

#include "program/builder.h"

namespace tessera {

// Stages 2 and 3 of FastSparseMoE (Optimus, algorithm 1): from each token's choice of experts to
// the order in which the experts take the tokens. The routed rows of one expert lie together, in
// token order, the experts in theirs.

/// Which experts are held here and how many tokens each takes.
struct RoutingOptions {
  int64_t experts = 0;        ///< of the whole layer
  int64_t first_expert = 0;   ///< the first one held here; choices of others are passed over
  int64_t local_experts = 0;  ///< how many are held here
  /// Tokens an expert takes at most, as a multiple of the balanced load (see expert_capacity); the
  /// ones beyond it, in token order, are dropped. Without it none are.
  std::optional<double> capacity_factor = {};
};

/// ceil(factor · tokens · k / experts).
int64_t expert_capacity(double factor, int64_t tokens, int64_t k, int64_t experts);

/// How many tokens each expert takes, and where its rows begin.
struct TokenCounts {
  Value counts;   ///< i32 [experts]: choices of each expert of the layer, before dropping
  Value offsets;  ///< i32 [local_experts + 1]: the first row of each local expert, then their end
  /// i32 [token blocks, local_experts]: how many earlier blocks' tokens chose the expert, that is,
  /// the place of the block's first one (partial_cum_token_counts in the paper).
  Value block_places;
};

/// Counts the choices: indices i32 [tokens, k]. An index outside [0, experts) chooses no expert.
/// Nothing has a gradient.
TokenCounts token_counts(Builder& builder, Value indices, const RoutingOptions& options);

/// Which token each routed row holds, and which row each choice became.
struct TokenIndices {
  /// i32 [tokens · k]: the token that routed row r holds; -1 for rows past the last offset, of
  /// which there are as many as choices dropped or not local.
  Value input_indices;
  /// i32 [tokens, k]: the routed row of each choice; -1 where it is dropped or not local.
  Value output_indices;
};

/// Numbers the routed rows: indices i32 [tokens, k] and the counts of the same indices.
TokenIndices token_indices(Builder& builder, Value indices, const TokenCounts& counts,
                           const RoutingOptions& options);

}  // namespace tessera
