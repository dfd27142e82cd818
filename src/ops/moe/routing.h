#pragma once

#include <optional>
#include <string>

#include "program/builder.h"

namespace tessera {

// Stages 2 and 3 of FastSparseMoE (Optimus, algorithm 1). They turn each token's choice of experts
// into the order in which the experts take the tokens. The routed rows of one expert lie together,
// in token order. The experts follow each other in their own order.
//
// How they lie over the ranks of an axis of the expert view (ops/moe/routed_types.h has the rule):
//
//   tokens             rows
//   varying (tokens)   varying (exchange): each rank makes rows of its own tokens
//   replicated         sharded by experts, on RoutingOptions::expert_axis: each rank makes the rows
//                      of its own experts
//   replicated         replicated, on other axes
//
// The rows of one exchange do not meet those of another. The counts are sums over the tokens.

/// How many routed rows a rank reserves memory for, where their number depends on the routing. A
/// run that has more throws Error.
struct RowBound {
  int64_t rows = 0;
  int64_t balanced = 0;  ///< rows if all ranks have equally many
  std::string key;       ///< the configuration key that sets the bound
};

/// Which experts are held here, and how many tokens each takes.
struct RoutingOptions {
  int64_t experts = 0;        ///< experts of the whole layer
  int64_t first_expert = 0;   ///< the first one held here; choices of other experts are skipped
  int64_t local_experts = 0;  ///< the number held here
  /// The most tokens that an expert takes, as a multiple of the balanced load (see
  /// expert_capacity()). Tokens beyond it, in token order, are dropped. Without a value none are
  /// dropped.
  std::optional<double> capacity_factor = {};
  /// The rows that are reserved; without a value as many as there are choices.
  std::optional<RowBound> row_bound = {};

  /// The axis over whose ranks the experts are split, if the tokens are replicated there.
  std::optional<Axis> expert_axis = {};
  /// What the types of rows made of split tokens are told apart by. Each layer has its own.
  int identity = -1;
};

/// Returns ceil(factor · tokens · k / experts).
int64_t expert_capacity(double factor, int64_t tokens, int64_t k, int64_t experts);

/// How many tokens each expert takes, and where its rows begin.
struct TokenCounts {
  Value counts;   ///< i32 [experts]: choices of each expert of the layer, before dropping
  Value offsets;  ///< i32 [local_experts + 1]: first row of each local expert, then the last end
  /// i32 [token blocks, local_experts]: how many tokens of earlier blocks chose the expert. That is
  /// the place of the block's first token (partial_cum_token_counts in the paper).
  Value block_places;
};

/// Counts the choices. indices are i32 [tokens, k]. An index outside [0, experts) chooses no
/// expert. There are no gradients.
TokenCounts token_counts(Builder& builder, Value indices, const RoutingOptions& options);

/// Which token each routed row holds, and which row each choice became.
struct TokenIndices {
  /// i32 [rows]: the token that routed row r holds, or -1 for rows past the last offset. There are
  /// tokens · k rows, or RoutingOptions::row_bound.
  Value input_indices;
  /// i32 [tokens, k]: the routed row of each choice, or -1 if it is dropped or not local.
  Value output_indices;
};

/// Numbers the routed rows. indices are i32 [tokens, k], and `counts` are the counts of these
/// indices.
TokenIndices token_indices(Builder& builder, Value indices, const TokenCounts& counts,
                           const RoutingOptions& options);

}  // namespace tessera
