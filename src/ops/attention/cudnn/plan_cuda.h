#pragma once

#include <memory>

#include "ops/attention/cudnn/attention_graph_cuda.h"

namespace tessera {

/// The device of a plan. One of the two members is null.
struct CudnnPlanDevice {
  cudnnHandle_t handle = nullptr;                ///< of a device that is present
  const CudnnDescriptor* description = nullptr;  ///< of an absent device: its plans cannot run
};

/// A graph of attention, and the engine of cuDNN that computes it on a device.
class CudnnAttentionPlan {
 public:
  /// Takes the first engine of cuDNN's heuristics that supports the attention, and that is
  /// deterministic if the kind is. Throws Error, naming the attention, if there is none.
  CudnnAttentionPlan(const CudnnLibrary& library, const CudnnPlanDevice& device,
                     const CudnnAttentionKind& kind);

  cudnnBackendDescriptor_t get() const { return plan_->get(); }
  /// Returns the bytes that cuDNN asks for, without the tensors that CudnnWorkspace has for it.
  int64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  CudnnGraph graph_;
  std::unique_ptr<CudnnDescriptor> config_;  // of the engine
  std::unique_ptr<CudnnDescriptor> plan_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace tessera
