#pragma once

#include <algorithm>

#include "ops/attention/attention_kernels.h"
#include "ops/attention/attention_shape.h"
#include "ops/attention/key_ranges.h"

namespace tessera {

/// An attention on an accelerator, forward or backward.
struct DeviceAttention {
  AttentionShape shape;
  DType dtype = DType::f32;
  bool backward = false;
  /// Addresses in the device's memory. In a plan, a non-null address only says what is given.
  TokenPositions positions = {};
};

/// Returns the sizes of an attention for kernels of devices. Throws InternalError if they do not
/// fit.
inline AttentionSizes kernel_sizes(const AttentionShape& shape) {
  const int64_t rows = shape.sequences * shape.heads * std::max(shape.sequence, shape.keys);
  TESSERA_CHECK(rows <= kMostRows && shape.head_dim <= kMostHeadDim,
                "attention on a device with {} rows of {} channels", rows, shape.head_dim);
  return {.sequences = static_cast<int>(shape.sequences),
          .sequence = static_cast<int>(shape.sequence),
          .keys = static_cast<int>(shape.keys),
          .heads = static_cast<int>(shape.heads),
          .kv_heads = static_cast<int>(shape.kv_heads),
          .head_dim = static_cast<int>(shape.head_dim),
          .scale = static_cast<float>(shape.scale)};
}

/// Enqueues the operation "attention" or "attention_gradient" on the execution's stream.
///
/// The emulated device runs the processor's kernels. A GPU has plain kernels for f32. For bf16,
/// NVIDIA's GPUs use cuDNN, or the plain kernels if queries are only a part of the keys' tokens,
/// which cuDNN does not take. AMD's GPUs throw Error for bf16, which would need a library of AMD's.
/// On GPUs nothing checks that positions ascend.
///
/// Where cudnn_documents() allows it, which takes a run that is not deterministic, cuDNN computes
/// only pairs within groups of documents (see DocumentGroups). Otherwise a mask hides the keys of
/// other documents, which saves no work.
void run_on_device(const Operation& operation, const Execution& execution,
                   const DeviceAttention& attention);

/// Prepares runs of an attention: opens cuDNN if it is used, and makes its plan, which takes about
/// a second. Throws Error if the runtime's device has no such attention, or as
/// require_cudnn_attention() does.
void require_device_attention(Runtime& runtime, const DeviceAttention& attention);

/// Returns the bytes of workspace on a GPU. Throws Error if it does not take heads of this size.
int64_t device_attention_workspace(const Target& target, const DeviceAttention& attention);

/// Enqueues the attention with the plain kernels, on any device. They take no head dim above
/// kMostHeadDim.
void run_attention_kernels(const Execution& execution, const DeviceAttention& attention);
int64_t attention_kernels_workspace(const DeviceAttention& attention);

}  // namespace tessera
