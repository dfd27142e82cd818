#pragma once

#include "ops/attention/attention_shape.h"
#include "ops/attention/key_ranges.h"

namespace tessera {

/// An attention on an accelerator, forward or backward.
struct DeviceAttention {
  AttentionShape shape;
  DType dtype = DType::f32;
  bool backward = false;
  TokenPlaces places = {};  ///< in the device's memory; for plans, any address of one that is given
};

/// Puts a run of the operation "attention" or "attention_gradient" into the execution's stream.
///
/// The emulated device computes it by the processor's kernels. On a device of NVIDIA, cuDNN
/// computes it in bf16, and plain kernels of ours in f32, and in bf16 for queries that are only a
/// part of the keys' tokens, which cuDNN does not take. On a device of AMD, the plain kernels
/// compute it in f32; in bf16 it would take a library of AMD's, and is refused. Nothing checks
/// there that positions ascend.
///
/// In a run that is not deterministic, cuDNN computes only pairs within groups of documents (see
/// DocumentGroups). Otherwise a mask hides the keys of other documents, which saves no work.
void run_on_device(const Operation& operation, const Execution& execution,
                   const DeviceAttention& attention);

/// Opens what such a run needs, and makes cuDNN's plan, which takes seconds. Throws Error if there
/// is no such attention on the runtime's device, or its library is missing or has no plan.
void require_device_attention(Runtime& runtime, const DeviceAttention& attention);

/// The workspace on a target that is neither the processor nor emulated. Throws Error if such an
/// attention is not to be had there.
int64_t device_attention_workspace(const Target& target, const DeviceAttention& attention);

/// The same by the plain kernels, of any device. They take no head dim above kMostHeadDim.
void run_attention_kernels(const Execution& execution, const DeviceAttention& attention);
int64_t attention_kernels_workspace(const DeviceAttention& attention);

}  // namespace tessera
