#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "config/run_config.h"

namespace tessera {

/// What the attention of one layer takes, whole: not divided over ranks.
struct AttentionAccount {
  std::string kind;  ///< "compressed convolutional", "grouped-query" or "multi-head"
  int64_t heads = 0;
  int64_t kv_heads = 0;
  /// FLOPs of the forward pass a token, on the average over a sequence of `data.context` tokens, as
  /// operations count them (see Cost::flops): of matrix products alone. A depthwise convolution is
  /// none.
  double projection_flops = 0;
  double convolution_flops = 0;
  double score_flops = 0;  ///< of scores and of values
  /// What a decoding program keeps for each position: keys and values, in the compute type.
  int64_t cache_bytes_per_token = 0;
  /// What it keeps whatever the length: the last rows of a convolution and of delayed values.
  int64_t cache_constant_bytes = 0;

  double flops() const { return projection_flops + convolution_flops + score_flops; }
};

/// Returns the account of the model's attention if it is compressed, and after it those of plain
/// attention at the width of the stream, which it is compared with (ZAYA1, appendix C): as many
/// query heads of the same size as hidden_size holds. The grouped-query one has as many of them to
/// a key head as the model; the multi-head one, last, has a key head for each, and is what ZAYA1
/// states its cache's compression against. If a group is one head, they are the same and stand
/// once, as multi-head. Sizes that do not divide give no such attention, and it is left out. Empty
/// for a model with other attention.
///
/// The numbers are read from programs of one layer, written as for evaluation and for decoding.
std::vector<AttentionAccount> attention_accounts(const RunConfig& config);

/// Returns a table of these accounts, and below it what is compared; empty if there are none.
std::string attention_table(const RunConfig& config);

/// The same as an array; how many times the model's is in `times_flops` and `times_cache`.
nlohmann::ordered_json attention_json(const RunConfig& config);

}  // namespace tessera
