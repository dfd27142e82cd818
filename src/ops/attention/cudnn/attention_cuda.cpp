#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <cuda_runtime_api.h>

#include "base/round_up.h"
#include "device/vendor.h"
#include "ops/attention/cudnn/attention.h"
#include "ops/attention/cudnn/plan_cuda.h"
#include "ops/attention/packed_documents.h"

// Runs attention by cuDNN. The first run of a kind makes a plan (plan_cuda.h), which the process
// keeps for each GPU. A run gives addresses to the tensors of the graph, by their ids (a "variant
// pack" in cuDNN's words), and enqueues the plan. With packed documents, Tessera's kernels find the
// groups before cuDNN runs. They also reorder the log-sum-exps, before or after.

namespace tessera {
namespace {

int gpu_attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&value, which, device);
  if (status != cudaSuccess) {
    throw Error("cannot ask the GPU for its compute capability: {}", cudaGetErrorString(status));
  }
  return value;
}

/// Throws Error if a kind packs documents and the GPU has compute capability 8 or 12. NVIDIA's own
/// frontend refuses packed log-sum-exps on these devices, whose kernels are those of Ampere.
void require_packing(const CudnnAttentionKind& kind) {
  if (kind.documents != CudnnDocuments::packed) return;
  const int major = gpu_attribute(cudaDevAttrComputeCapabilityMajor);
  if (major != 8 && major != 12) return;
  throw Error(
      "cuDNN packs documents on devices of compute capability 9.0 and 10.0, not on this one of "
      "{}.{}: train with run.deterministic = true, or without data.document_mask",
      major, gpu_attribute(cudaDevAttrComputeCapabilityMinor));
}

/// The handle of cuDNN for one GPU, and its plans. Several threads may use it.
class CudnnPlans {
 public:
  /// Opens the calling thread's GPU.
  CudnnPlans() { library_.check(library_.create(&handle_), "open the device"); }
  CudnnPlans(const CudnnPlans&) = delete;

  const CudnnLibrary& library() const { return library_; }

  /// Returns the plan for a kind, and makes it at its first use.
  const CudnnAttentionPlan& plan(const CudnnAttentionKind& kind) {
    const std::scoped_lock lock(mutex_);
    std::unique_ptr<CudnnAttentionPlan>& plan = plans_[kind];
    if (plan) return *plan;
    require_packing(kind);
    auto made =
        std::make_unique<CudnnAttentionPlan>(library_, CudnnPlanDevice{.handle = handle_}, kind);
    const int64_t planned = CudnnWorkspace(kind).library;
    if (made->workspace_bytes() > planned) {
      throw Error(
          "cuDNN {} asks for {} bytes of workspace for {}; {} were planned, more than cuDNN 9.19 "
          "takes on Hopper. Install that, or train on another device",
          library_.version_text(), made->workspace_bytes(), text(kind), planned);
    }
    plan = std::move(made);
    return *plan;
  }

  /// Enqueues a run of a plan on a stream.
  void run(const CudnnAttentionPlan& plan, cudnnBackendDescriptor_t variant_pack, Stream& stream) {
    const std::scoped_lock lock(mutex_);
    library_.check(library_.set_stream(handle_, static_cast<cudaStream_t>(stream.handle())),
                   "take a stream");
    library_.check(library_.execute(handle_, plan.get(), variant_pack), "run attention");
  }

 private:
  CudnnLibrary library_;
  std::mutex mutex_;
  cudnnHandle_t handle_ = nullptr;
  std::map<CudnnAttentionKind, std::unique_ptr<CudnnAttentionPlan>> plans_;
};

/// Returns the plans for the calling thread's GPU. A plan takes a second to make, so the process
/// keeps them: a test, or a run that is measured, opens the device many times. The plans are never
/// freed, because the driver may be gone when the process ends.
CudnnPlans& plans_of_gpu() {
  int gpu = 0;
  const cudaError_t status = cudaGetDevice(&gpu);
  if (status != cudaSuccess) {
    throw Error("cannot ask which GPU is used: {}", cudaGetErrorString(status));
  }
  static std::mutex mutex;
  static auto& plans = *std::make_unique<std::map<int, CudnnPlans>>().release();
  const std::scoped_lock lock(mutex);
  return plans[gpu];
}

/// The addresses of a run's operands, by the ids of the graph's tensors.
class VariantPack {
 public:
  explicit VariantPack(const CudnnLibrary& library)
      : pack_(library, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) {}

  /// Adds the addresses of tensors, except null: then the graph does not have the tensor.
  void add(std::initializer_list<std::pair<CudnnAttentionTensor, const void*>> operands) {
    for (const auto& [id, address] : operands) {
      if (address == nullptr) continue;
      ids_.push_back(static_cast<int64_t>(id));
      addresses_.push_back(const_cast<void*>(address));  // cuDNN's interface has no const
    }
  }
  cudnnBackendDescriptor_t finish(void* workspace) {
    pack_.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::span<const int64_t>(ids_));
    pack_.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
              std::span<void* const>(addresses_));
    pack_.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
    pack_.finalize("take the addresses of attention's operands");
    return pack_.get();
  }

 private:
  CudnnDescriptor pack_;
  std::vector<int64_t> ids_;
  std::vector<void*> addresses_;
};

/// Enqueues the kernel that finds the groups of packed documents. Returns their arrays in `memory`,
/// which is the device's.
PackedArrays pack_documents(const CudnnAttentionKind& kind, const void* document_starts,
                            std::byte* memory, Stream& stream) {
  const DocumentGroups groups(kind.sequences, kind.sequence);
  const PackedArrays arrays(groups, memory);
  const auto head_dim = static_cast<int>(kind.head_dim), heads = static_cast<int>(kind.heads);
  pack_documents_device<Cuda>(
      {.groups = static_cast<int>(groups.count()),
       .groups_per_sequence = static_cast<int>(groups.per_sequence()),
       .sequence = static_cast<int>(kind.sequence),
       .stretch = static_cast<int>(groups.stretch),
       .widths = {heads * head_dim, static_cast<int>(kind.kv_heads) * head_dim, heads},
       .document_starts = static_cast<const int32_t*>(document_starts),
       .lengths = arrays.lengths,
       .offsets = {arrays.offsets[0], arrays.offsets[1], arrays.offsets[2]},
       .starts = arrays.starts},
      stream);
  return arrays;
}

RowNumbers row_numbers(const CudnnAttentionKind& kind, const void* from, void* to) {
  return {.sequences = static_cast<int>(kind.sequences),
          .heads = static_cast<int>(kind.heads),
          .sequence = static_cast<int>(kind.sequence),
          .from = static_cast<const float*>(from),
          .to = static_cast<float*>(to)};
}

}  // namespace

void require_cudnn_attention(const CudnnAttentionKind& kind) { plans_of_gpu().plan(kind); }

void cudnn_attention(const Execution& execution, const CudnnAttentionKind& kind, double scale,
                     const CudnnAttentionOperands& operands, std::byte* workspace) {
  using Id = CudnnAttentionTensor;
  CudnnPlans& plans = plans_of_gpu();
  const CudnnAttentionPlan& plan = plans.plan(kind);
  Stream& stream = *execution.stream;

  const CudnnWorkspace sizes(kind);
  const auto begin = static_cast<int64_t>(reinterpret_cast<uintptr_t>(workspace));
  Scratch scratch(workspace + (round_up(begin, kCudnnAlignment) - begin));
  const auto take = [&](int64_t bytes) {  // null for no bytes
    return bytes > 0 ? scratch.array<std::byte>(bytes) : nullptr;
  };
  // cuDNN reads these numbers when the work is enqueued.
  const auto factor = static_cast<float>(scale);
  const float nothing = -std::numeric_limits<float>::infinity(), one = 1;
  VariantPack pack(plans.library());
  pack.add({{Id::q, operands.q},
            {Id::k, operands.k},
            {Id::v, operands.v},
            {Id::output, operands.output},
            {Id::output_gradient, operands.output_gradient},
            {Id::q_gradient, operands.q_gradient},
            {Id::k_gradient, operands.k_gradient},
            {Id::v_gradient, operands.v_gradient},
            {Id::delta, take(sizes.delta)},
            {Id::q_gradient_sums, take(sizes.q_gradient_sums)},
            {Id::k_gradient_heads, take(sizes.head_gradients)},
            {Id::v_gradient_heads, take(sizes.head_gradients)},
            {Id::scale, &factor},
            {Id::nothing, &nothing},
            {Id::one, kind.backward ? &one : nullptr}});
  const bool packed = kind.documents == CudnnDocuments::packed;
  std::byte* const log_sum_exp = take(sizes.packed_log_sum_exp);
  std::byte* const packing = take(sizes.packing);
  if (packed) {
    const PackedArrays arrays = pack_documents(kind, operands.document_starts, packing, stream);
    pack.add({{Id::queries, arrays.lengths},
              {Id::keys, arrays.lengths},
              {Id::row_offsets, arrays.offsets[0]},
              {Id::key_offsets, arrays.offsets[1]},
              {Id::number_offsets, arrays.offsets[2]},
              {Id::document_starts, arrays.starts},
              {Id::log_sum_exp, log_sum_exp}});
    if (kind.backward) {
      reorder_rows_device<Cuda>(row_numbers(kind, operands.log_sum_exp, log_sum_exp), true, stream);
    }
  } else {
    pack.add(
        {{Id::document_starts, operands.document_starts}, {Id::log_sum_exp, operands.log_sum_exp}});
  }
  plans.run(plan, pack.finish(take(sizes.library)), stream);
  if (packed && !kind.backward) {
    reorder_rows_device<Cuda>(row_numbers(kind, log_sum_exp, operands.log_sum_exp), false, stream);
  }
}

}  // namespace tessera
