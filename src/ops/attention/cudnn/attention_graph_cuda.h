#pragma once

#include <cstdint>

#include "ops/attention/cudnn/graph_cuda.h"
#include "ops/attention/cudnn/kind.h"

namespace tessera {

/// The ids by which a run gives addresses to the graphs' tensors.
enum class CudnnAttentionTensor : int64_t {
  q = 1,
  k,
  v,
  output,
  log_sum_exp,
  document_starts,
  of_output,
  of_q,
  of_k,
  of_v,
  delta,     // f32 [sequences, heads, sequence], or [tokens, heads] if packed: rowsum(dO · O)
  of_q_sum,  // f32 [sequences, heads, sequence, head_dim], or as of_q if packed
  // Of packed documents:
  of_k_heads,  // bf16 [tokens, heads · head_dim]: before the heads of a group are summed
  of_v_heads,
  queries,      // i32 [groups of documents]: lengths
  keys,         // the same
  row_offsets,  // i32 [groups of documents + 1]: first elements in q, output and their gradients
  key_offsets,
  number_offsets,  // in delta and log_sum_exp
  scale,           // numbers of the host
  nothing,         // -infinity: the score of a key that is not attended to
  one,
};

/// Writes softmax(mask(scale · q kᵀ)) v and the log-sum-exp, as the operations whose pattern cuDNN
/// computes by one kernel.
void write_attention_forward(CudnnGraph& graph, const CudnnAttentionKind& kind);

/// Writes the gradients of q, k and v (see attention_gradient_plain()). Deterministic or not is
/// said by the pattern: dQ is either the product dS K itself, for which cuDNN keeps all of dS in
/// its workspace, or is added up in f32 memory by atomics. Packed documents follow the pattern that
/// NVIDIA's frontend writes for ragged tensors with padding masks and a bound on all tokens.
void write_attention_backward(CudnnGraph& graph, const CudnnAttentionKind& kind);

}  // namespace tessera
