#pragma once

#include <cstdint>

#include "ops/attention/cudnn/graph_cuda.h"
#include "ops/attention/cudnn/kind.h"

namespace tessera {

/// The ids of the graphs' tensors. A run gives addresses to ids.
enum class CudnnAttentionTensor : int64_t {
  q = 1,
  k,
  v,
  output,
  log_sum_exp,
  document_starts,
  output_gradient,
  q_gradient,
  k_gradient,
  v_gradient,
  delta,  // f32 [sequences, heads, sequence], or [tokens, heads] if packed: rowsum(dO · O)
  q_gradient_sums,  // f32 [sequences, heads, sequence, head_dim], or as q_gradient if packed
  // With packed documents, bf16 [tokens, heads · head_dim]: the gradients of keys and values for
  // each query head, before they are summed over a group
  k_gradient_heads,
  v_gradient_heads,
  queries,      // i32 [groups of documents]: lengths
  keys,         // i32 [groups of documents]: lengths
  row_offsets,  // i32 [groups of documents + 1]: first elements in q, output and their gradients
  key_offsets,
  number_offsets,  // i32 [groups of documents + 1]: first elements in delta and log_sum_exp
  // Numbers in the host's memory:
  scale,
  nothing,  // -infinity: the score of a key that is not attended to
  one,
};

/// Writes softmax(mask(scale · q kᵀ)) v and the log-sum-exp, in the pattern of operations that
/// cuDNN computes with one kernel.
void write_attention_forward(CudnnGraph& graph, const CudnnAttentionKind& kind);

/// Writes the gradients of q, k and v (see attention_gradient_plain()). There is a pattern for each
/// value of `kind.deterministic`. If true, dQ is the product dS K itself, for which cuDNN keeps all
/// of dS in its workspace. If false, dQ is added up in f32 memory by atomics. Packed documents
/// follow the pattern of NVIDIA's frontend for ragged tensors with padding masks and a bound on the
/// number of all tokens.
void write_attention_backward(CudnnGraph& graph, const CudnnAttentionKind& kind);

}  // namespace tessera
