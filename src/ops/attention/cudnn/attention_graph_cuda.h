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
  delta,     // f32 [sequences, heads, sequence]: rowsum(dO · O)
  of_q_sum,  // f32 [sequences, heads, sequence, head_dim]; not if deterministic
  scale,     // numbers of the host
  nothing,   // -infinity: the score of a key that is not attended to
  one,
};

/// Writes softmax(mask(scale · q kᵀ)) v and the log-sum-exp, as the operations whose pattern cuDNN
/// computes by one kernel.
void write_attention_forward(CudnnGraph& graph, const CudnnAttentionKind& kind);

/// Writes the gradients of q, k and v (see attention_gradient_plain()). Deterministic or not is
/// said by the pattern: dQ is either the product dS K itself, for which cuDNN keeps all of dS in
/// its workspace, or is added up in f32 memory by atomics.
void write_attention_backward(CudnnGraph& graph, const CudnnAttentionKind& kind);

}  // namespace tessera
