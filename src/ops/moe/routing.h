#pragma once

#include <optional>
#include <string>

#include "program/builder.h"

namespace tessera {

// Stages 2 and 3 of FastSparseMoE (Optimus, algorithm 1). They turn each token's choice of experts
// into the order of the routed rows. A routed row is one token for one of its experts. The rows of
// an expert are consecutive, in token order, and the experts are in order of their index.
//
// This is how tokens and rows are distributed on an axis of the expert view of the mesh
// (ops/moe/routed_types.h has the rule):
//
//   tokens             rows
//   varying (tokens)   varying (exchange): each rank makes rows of its own tokens
//   replicated         sharded by experts, on RoutingOptions::expert_axis: each rank makes the rows
//                      of its own experts
//   replicated         replicated, on other axes
//
// Rows of different exchanges cannot be combined. Counts are partial where the tokens are split.

/// The number of routed rows that a rank reserves memory for, if their number depends on the
/// routing. A run that has more throws Error.
struct RowBound {
  int64_t rows = 0;
  int64_t balanced = 0;  ///< the number of rows if all ranks have equally many
  std::string key;       ///< the configuration key that sets the bound
};

/// Throws Error if this rank's `rows` are more than `bound` reserves. The error names the node with
/// its layer, the rank, the imbalance of the load and the configuration key.
void require_row_bound(const Execution& execution, const RowBound& bound, int64_t rows);

/// The experts that this rank holds, and the limits of their tokens and rows.
struct RoutingOptions {
  int64_t experts = 0;        ///< experts of the whole layer
  int64_t first_expert = 0;   ///< the first expert of this rank
  int64_t local_experts = 0;  ///< experts of this rank; choices of other experts get no row
  /// The capacity: the largest number of tokens that an expert takes, as a multiple of the balanced
  /// load (see expert_capacity()). Tokens beyond it, in token order, are dropped; none without it.
  std::optional<double> capacity_factor = {};
  /// The rows that the rank reserves. Without a value it reserves one row for each choice.
  std::optional<RowBound> row_bound = {};

  /// The axis that splits the experts, if the tokens are replicated on it.
  std::optional<Axis> expert_axis = {};
  /// If the tokens are split, the number of the exchange in the type of their rows
  /// (Builder::new_exchange()). Each layer has another one, so the rows of two layers do not mix.
  int identity = -1;
};

/// Returns the largest number of tokens that an expert takes, ceil(factor · tokens · k / experts).
/// A product just above a whole number, by rounding, counts as that number.
int64_t expert_capacity(double factor, int64_t tokens, int64_t k, int64_t experts);

/// The number of tokens that choose each expert, and the offsets of the experts' rows.
struct TokenCounts {
  Value counts;   ///< i32 [experts]: choices of each expert of the layer, before dropping
  Value offsets;  ///< i32 [local_experts + 1]: the first row of each local expert, then the end
  /// i32 [token blocks, local_experts]: the number of tokens in earlier blocks of tokens that chose
  /// the expert. It is the index of the block's first token among the expert's tokens
  /// (partial_cum_token_counts in the paper).
  Value block_offsets;
};

/// Counts the tokens' choices of experts. indices are i32 [tokens, k]. An index outside
/// [0, experts) chooses no expert. There is no gradient.
TokenCounts token_counts(Builder& builder, Value indices, const RoutingOptions& options);

/// The token of each routed row, and the row of each choice.
struct TokenIndices {
  /// i32 [rows]: the token that routed row r holds, or -1 for rows past the last offset. There are
  /// tokens · k rows, or RoutingOptions::row_bound.
  Value input_indices;
  /// i32 [tokens, k]: the routed row of each choice, or -1 if it is dropped or not local.
  Value output_indices;
};

/// Numbers the routed rows: gives each kept choice its row. indices are i32 [tokens, k], and
/// `counts` are the counts of these indices. There is no gradient.
TokenIndices token_indices(Builder& builder, Value indices, const TokenCounts& counts,
                           const RoutingOptions& options);

}  // namespace tessera
