#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "config/run_config.h"

namespace tessera {

/// The cost of the attention of one layer, whole: not divided over ranks.
struct AttentionAccount {
  std::string kind;  ///< "compressed convolutional", "grouped-query" or "multi-head"
  int64_t heads = 0;
  int64_t kv_heads = 0;
  /// Forward FLOPs per token, on the average over a sequence of `data.context` tokens. As in
  /// Cost::flops, only matrix products count; a depthwise convolution has none.
  double projection_flops = 0;
  double convolution_flops = 0;
  double score_flops = 0;  ///< of scores and of values
  /// The bytes that a decoding program keeps for each position: keys and values, in the compute
  /// type.
  int64_t cache_bytes_per_token = 0;
  /// The bytes that it keeps at any length: the last rows of a convolution and of delayed values.
  int64_t cache_constant_bytes = 0;

  double flops() const { return projection_flops + convolution_flops + score_flops; }
};

/// Returns the account of the model's attention if it is compressed, followed by those of the plain
/// attention that it is compared with (ZAYA1, appendix C). Plain attention has the width of the
/// residual stream: as many query heads of the same size as hidden_size holds. The grouped-query
/// one has as many query heads per key head as the model. The multi-head one, last, has a key head
/// for each; ZAYA1 states its cache's compression against it. With groups of one head the two are
/// the same and are listed once, as multi-head. Plain attention whose sizes do not divide is left
/// out. Returns an empty list for a model with other attention.
///
/// The numbers are read from programs of one layer, written as for evaluation and for decoding.
std::vector<AttentionAccount> attention_accounts(const RunConfig& config);

/// Returns a table of these accounts with notes below it; empty if there are none.
std::string attention_table(const RunConfig& config);

/// Returns the accounts as an array. `times_flops` and `times_cache` are ratios to the model's own.
nlohmann::ordered_json attention_json(const RunConfig& config);

}  // namespace tessera
