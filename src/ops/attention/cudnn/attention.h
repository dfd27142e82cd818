#pragma once

#include "ops/attention/cudnn/kind.h"
#include "program/operation.h"

namespace tessera {

/// The operands of cuDNN's attention, in the device's memory. Those that the kind does not have are
/// null. Layouts are those of attention().
struct CudnnAttentionOperands {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* document_starts = nullptr;
  const void* of_output = nullptr;  ///< the backward pass's, as the gradients are
  void* output = nullptr;
  void* log_sum_exp = nullptr;
  void* of_q = nullptr;
  void* of_k = nullptr;
  void* of_v = nullptr;
};

/// Loads cuDNN and makes the plan of an attention for the calling thread's GPU, which takes a
/// second, unless the process has done that before. Throws Error if cuDNN is missing, has no plan,
/// or asks for more workspace than CudnnWorkspace(kind) has.
void require_cudnn_attention(const CudnnAttentionKind& kind);

/// Puts an attention into the stream of a device of NVIDIA. The first run of a kind makes
/// the plan, unless require_cudnn_attention() did; later ones neither allocate memory of the device
/// nor wait. The execution's workspace begins with `workspace` and has
/// CudnnWorkspace(kind).bytes(). Throws Error as require_cudnn_attention() does.
void cudnn_attention(const Execution& execution, const CudnnAttentionKind& kind, double scale,
                     const CudnnAttentionOperands& operands, std::byte* workspace);

}  // namespace tessera
