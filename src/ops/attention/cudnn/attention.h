#pragma once

#include "ops/attention/cudnn/kind.h"
#include "program/operation.h"

namespace tessera {

/// The operands of cuDNN's attention, in the device's memory. Operands that the kind of attention
/// does not have are null. Layouts are those of attention().
struct CudnnAttentionOperands {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* document_starts = nullptr;
  const void* output_gradient = nullptr;  ///< of the backward pass only, like the gradients
  void* output = nullptr;
  void* log_sum_exp = nullptr;
  void* q_gradient = nullptr;
  void* k_gradient = nullptr;
  void* v_gradient = nullptr;
};

/// Loads cuDNN and makes the plan of an attention for the calling thread's GPU, which takes a
/// second, unless the process already has it. Throws Error if cuDNN is missing, has no plan, does
/// not pack documents on this GPU, or asks for more workspace than CudnnWorkspace(kind) has.
void require_cudnn_attention(const CudnnAttentionKind& kind);

/// Enqueues an attention on the stream of a device of NVIDIA. The first run of a kind makes the
/// plan, unless require_cudnn_attention() did; later ones neither allocate memory of the device nor
/// wait. `workspace` has CudnnWorkspace(kind).bytes(). Throws Error as require_cudnn_attention()
/// does.
void cudnn_attention(const Execution& execution, const CudnnAttentionKind& kind, double scale,
                     const CudnnAttentionOperands& operands, std::byte* workspace);

}  // namespace tessera
