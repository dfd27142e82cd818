#pragma once

#include <cstdint>
#include <vector>

#include "plan/blocks/block_measurement.h"
#include "tensor/dtype.h"

namespace tessera {

/// The sizes of one mixture-of-experts layer; the defaults are those of OLMoE-1B-7B.
struct MixtureBlockSizes {
  int64_t tokens = 4096;
  int64_t hidden = 2048;
  int64_t experts = 64;
  int64_t experts_per_token = 8;
  int64_t expert_size = 1024;
  bool uniform_routing = false;  ///< forced uniform routing: every expert gets equally many tokens
  /// The load of the fullest expert over the balanced load, given to the layer instead of the
  /// router's choice (see skewed_choices()). 0: the router chooses.
  double skew = 0;
};

/// Returns a mixture-of-experts layer as models have it: router, choice of experts, gathering, the
/// experts' SwiGLU, reduction. Its backward pass computes the gradients of the input and of all
/// weights. Its only i32 output is the number of tokens per expert. Throws Error on sizes that
/// contradict each other.
BlockProgram mixture_block(const MixtureBlockSizes& sizes, DType compute);

/// Returns experts for tokens, [tokens, k] and all different for one token, such that the fullest
/// expert gets `skew` times the balanced load. The load of expert e is proportional to
/// (e + 1)^-exponent; with a skew of 1 all are equal. The tokens of an expert are random, but
/// always the same. Throws Error if no choice has such a skew: an expert gets each token at most
/// once.
std::vector<int32_t> skewed_choices(int64_t tokens, int64_t experts, int64_t k, double skew);

/// The sizes of one attention over one sequence, without its projections.
struct AttentionBlockSizes {
  int64_t tokens = 4096;
  int64_t heads = 16;
  int64_t kv_heads = 16;
  int64_t head_size = 128;
  /// The number of documents that the sequence is cut into, equally long to within a token. No
  /// document attends to another. 0: no document mask.
  int64_t documents = 0;
};

/// Returns causal attention with the gradients of queries, keys and values. `flops` counts the
/// products of each token with itself and the earlier tokens of its document. Throws Error on sizes
/// that contradict each other.
BlockProgram attention_block(const AttentionBlockSizes& sizes, DType compute);

}  // namespace tessera
