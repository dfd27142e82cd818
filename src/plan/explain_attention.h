#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "config/run_config.h"

namespace tessera {

/// The cost of one layer's attention, on all ranks together.
struct AttentionAccount {
  std::string kind;  ///< "compressed convolutional", "grouped-query" or "multi-head"
  int64_t heads = 0;
  int64_t kv_heads = 0;
  /// Forward FLOPs per token, averaged over a sequence of `data.context` tokens. As in Cost::flops,
  /// only matrix products count; a depthwise convolution has none.
  double projection_flops = 0;
  double convolution_flops = 0;
  double score_flops = 0;  ///< of queries times keys, and of weights times values
  /// The bytes that a decoding program keeps for each position: keys and values.
  int64_t cache_bytes_per_token = 0;
  /// The bytes kept beside the cache: last rows of convolutions and of delayed values.
  int64_t cache_constant_bytes = 0;

  double flops() const { return projection_flops + convolution_flops + score_flops; }
};

/// Returns the account of compressed attention, followed by those of the plain attention with which
/// ZAYA1 (appendix C) compares it; empty if the model's attention is not compressed. Plain
/// attention has hidden_size / head_size query heads of the same size; if that is no whole number,
/// there is none:
///
/// - grouped-query: with as many query heads per key head as the model. It is left out if that
///   number is one, or if it does not divide the query heads.
/// - multi-head: with a key head for each query head. ZAYA1 states the compression of the cache
///   against multi-head attention.
///
/// The numbers are read from programs of one layer, written as for evaluation and for decoding.
std::vector<AttentionAccount> attention_accounts(const RunConfig& config);

/// Returns a table of these accounts with notes below it; empty if there are none.
std::string attention_table(const RunConfig& config);

/// Returns the accounts as an array. `times_flops` and `times_cache` are ratios to the model's own.
nlohmann::ordered_json attention_json(const RunConfig& config);

}  // namespace tessera
