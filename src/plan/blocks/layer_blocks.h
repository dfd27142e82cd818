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
  /// The load of the fullest expert over the balanced load. The layer gets skewed_choices() instead
  /// of its router's choices. 0: the router chooses.
  double skew = 0;
};

/// Returns a mixture-of-experts layer as models have it: router, choice of experts, gathering, the
/// experts' SwiGLU, reduction. Its backward pass computes the gradients of the input and of all
/// weights. Its only i32 output is the number of tokens per expert. Throws Error on sizes that
/// contradict each other.
BlockProgram mixture_block(const MixtureBlockSizes& sizes, DType compute);

/// Returns k different experts for each token, [tokens, k], with which the fullest expert has
/// `skew` times the balanced load. The load of expert e is proportional to (e + 1)^-x, where the
/// exponent x follows from the skew. The tokens of an expert are random, but the same in each call.
/// Throws Error if the skew is below 1 or above experts / k: an expert gets each token at most
/// once.
std::vector<int32_t> skewed_choices(int64_t tokens, int64_t experts, int64_t k, double skew);

/// The sizes of one attention over one sequence, without its projections.
struct AttentionBlockSizes {
  int64_t tokens = 4096;
  int64_t heads = 16;
  int64_t kv_heads = 16;
  int64_t head_size = 128;
  /// The number of documents in the sequence, which are equally long to within a token. Tokens
  /// attend within their document. 0: no document mask.
  int64_t documents = 0;
};

/// Returns causal attention with the gradients of queries, keys and values. `flops` counts the
/// products of each token with itself and the earlier tokens of its document. Throws Error on sizes
/// that contradict each other.
BlockProgram attention_block(const AttentionBlockSizes& sizes, DType compute);

}  // namespace tessera
