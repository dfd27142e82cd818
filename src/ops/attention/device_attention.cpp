#include "ops/attention/device_attention.h"

#include "ops/attention/cudnn/attention.h"
#include "ops/attention/scratch.h"
#include "ops/support.h"

// Chooses what computes attention on a device: cuDNN, the plain kernels or, on the emulated device,
// the processor. The workspace of a plan and the check before the first run follow this choice.

namespace tessera {
namespace {

/// The workspace of the plain kernels.
struct KernelScratch : KeyRangeMemory {
  KernelScratch(Scratch& scratch, const DeviceAttention& attention)
      : KeyRangeMemory(scratch, attention.shape),
        delta(attention.backward
                  ? scratch.array<float>(attention.shape.heads * attention.shape.tokens())
                  : nullptr) {}

  float* delta;
};

/// Returns whether cuDNN computes an attention on a device of NVIDIA. It takes bf16, and sequences
/// whose queries and keys are of the same tokens.
bool uses_cudnn(const DeviceAttention& attention) {
  return attention.dtype == DType::bf16 && attention.shape.aligned;
}

CudnnAttentionKind cudnn_kind(const Target& target, const DeviceAttention& attention) {
  const AttentionShape& shape = attention.shape;
  CudnnAttentionKind kind{.sequences = shape.sequences,
                          .sequence = shape.sequence,
                          .heads = shape.heads,
                          .kv_heads = shape.kv_heads,
                          .head_dim = shape.head_dim,
                          .backward = attention.backward,
                          .deterministic = !attention.backward || target.deterministic};
  if (attention.positions.document_starts != nullptr) {
    kind.documents = cudnn_documents(kind, target.deterministic);
  }
  return kind;
}

/// Throws Error for bf16 on the device hip, which this version cannot compute.
void require_implemented(Device device, const DeviceAttention& attention) {
  if (device != Device::hip || attention.dtype != DType::bf16) return;
  throw Error(
      "no attention in bf16 on the device \"hip\": it takes a library of AMD's, Composable Kernel "
      "or AOTriton, for which tessera has no code yet. Compute on another device");
}

#if defined(TESSERA_CUDA)
void run_cudnn(const Execution& execution, const DeviceAttention& attention) {
  const auto& inputs = execution.inputs;
  const auto& outputs = execution.outputs;
  CudnnAttentionOperands operands{.q = inputs[0].address(),
                                  .k = inputs[1].address(),
                                  .v = inputs[2].address(),
                                  .document_starts = attention.positions.document_starts};
  if (attention.backward) {
    operands.output = inputs[3].address();
    operands.log_sum_exp = inputs[4].address();
    operands.output_gradient = inputs[5].address();
    operands.q_gradient = outputs[0].address();
    operands.k_gradient = outputs[1].address();
    operands.v_gradient = outputs[2].address();
  } else {
    operands.output = outputs[0].address();
    operands.log_sum_exp = outputs[1].address();
  }
  cudnn_attention(execution, cudnn_kind(execution.runtime.target(), attention),
                  attention.shape.scale, operands, execution.workspace.data());
}
#else
void run_cudnn(const Execution&, const DeviceAttention&) {
  throw InternalError("attention on the device cuda in a build without it");
}
#endif

}  // namespace

void run_on_device(const Operation& operation, const Execution& execution,
                   const DeviceAttention& attention) {
  const Device device = execution.stream->device();
  if (device == Device::emulated) return run_by_processor(operation, execution);
  require_implemented(device, attention);
  if (device == Device::cuda && uses_cudnn(attention)) return run_cudnn(execution, attention);
  run_attention_kernels(execution, attention);
}

void require_device_attention(Runtime& runtime, const DeviceAttention& attention) {
  const Device device = runtime.target().device;
  require_implemented(device, attention);
#if defined(TESSERA_CUDA)
  if (device == Device::cuda && uses_cudnn(attention)) {
    require_cudnn_attention(cudnn_kind(runtime.target(), attention));
  }
#endif
}

int64_t device_attention_workspace(const Target& target, const DeviceAttention& attention) {
  const int64_t head_dim = attention.shape.head_dim;
  if (target.device == Device::cuda && uses_cudnn(attention)) {
    if (head_dim % kCudnnHeadDimStep != 0 || head_dim > kCudnnMostHeadDim) {
      throw Error(
          "cuDNN's attention takes heads of a multiple of {} channels up to {}, not of {}: change "
          "model.hidden_size or model.heads, or train with train.precision = \"fp32\"",
          kCudnnHeadDimStep, kCudnnMostHeadDim, head_dim);
    }
    return CudnnWorkspace(cudnn_kind(target, attention)).bytes();
  }
  if (head_dim > kMostHeadDim) {
    throw Error(
        "attention on the device \"{}\" takes heads of up to {} channels, not of {}: change "
        "model.hidden_size or model.heads",
        word(target.device), kMostHeadDim, head_dim);
  }
  return attention_kernels_workspace(attention);
}

void run_attention_kernels(const Execution& execution, const DeviceAttention& attention) {
  Scratch scratch(execution.workspace.data());
  const KernelScratch memory(scratch, attention);
  const AttentionSizes sizes = kernel_sizes(attention.shape);
  const auto& inputs = execution.inputs;
  const auto& outputs = execution.outputs;
  on_device(execution, [&]<typename Vendor, typename T>(Vendor, T) {
    key_ranges_device<Vendor>(KeyRangeSearch{.sizes = sizes,
                                             .document_starts = attention.positions.document_starts,
                                             .positions = attention.positions.queries,
                                             .key_positions = attention.positions.keys,
                                             .begin = memory.begin,
                                             .end = memory.end},
                              *execution.stream);
    const AttentionOperands<T> operands{sizes,
                                        inputs[0].pointer<T>(),
                                        inputs[1].pointer<T>(),
                                        inputs[2].pointer<T>(),
                                        memory.begin,
                                        memory.end};
    if (!attention.backward) {
      return attention_device<Vendor>(
          AttentionForward<T>{operands, outputs[0].pointer<T>(), outputs[1].pointer<float>()},
          *execution.stream);
    }
    attention_gradient_device<Vendor>(
        AttentionBackward<T>{operands, inputs[3].pointer<T>(), inputs[4].pointer<float>(),
                             inputs[5].pointer<T>(), memory.delta, outputs[0].pointer<T>(),
                             outputs[1].pointer<T>(), outputs[2].pointer<T>()},
        *execution.stream);
  });
}

int64_t attention_kernels_workspace(const DeviceAttention& attention) {
  return layout_bytes<KernelScratch>(attention);
}

}  // namespace tessera
