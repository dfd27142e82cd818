#include <array>
#include <limits>
#include <map>
#include <memory>

#include "base/round_up.h"
#include "ops/attention/cudnn/attention.h"
#include "ops/attention/cudnn/plan_cuda.h"

namespace tessera {
namespace {

/// A rank's handle of cuDNN and its plans.
class CudnnPlans {
 public:
  CudnnPlans() {
    library_.check(library_.create(&handle_), "open the device");
    device_ = std::make_unique<CudnnDescriptor>(cudnn_device(library_, handle_));
  }
  ~CudnnPlans() {
    device_.reset();
    library_.destroy(handle_);
  }
  CudnnPlans(const CudnnPlans&) = delete;

  const CudnnLibrary& library() const { return library_; }
  cudnnHandle_t handle() const { return handle_; }

  /// The plan for a kind, made at its first use.
  const CudnnAttentionPlan& plan(const CudnnAttentionKind& kind) {
    std::unique_ptr<CudnnAttentionPlan>& plan = plans_[kind];
    if (plan) return *plan;
    auto made = std::make_unique<CudnnAttentionPlan>(library_, *device_, kind);
    const int64_t planned = CudnnWorkspace(kind).library;
    if (made->workspace_bytes() > planned) {
      throw Error(
          "cuDNN {} asks for {} bytes of workspace for {}; {} were planned, as cuDNN 9.19 has it "
          "on "
          "Hopper. Install that, or train on another device",
          library_.version_text(), made->workspace_bytes(), text(kind), planned);
    }
    plan = std::move(made);
    return *plan;
  }

 private:
  CudnnLibrary library_;
  cudnnHandle_t handle_ = nullptr;
  std::unique_ptr<CudnnDescriptor> device_;
  std::map<CudnnAttentionKind, std::unique_ptr<CudnnAttentionPlan>> plans_;
};

/// The addresses of a run, by the ids of the graph's tensors.
class VariantPack {
 public:
  explicit VariantPack(const CudnnLibrary& library)
      : pack_(library, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) {}

  /// Leaves out a tensor that the graph does not have.
  void add(CudnnAttentionTensor id, const void* address) {
    if (address == nullptr) return;
    ids_.push_back(static_cast<int64_t>(id));
    addresses_.push_back(const_cast<void*>(address));
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

std::byte* aligned(std::byte* address) {
  const auto number = static_cast<int64_t>(reinterpret_cast<uintptr_t>(address));
  return address + (round_up(number, kCudnnAlignment) - number);
}

}  // namespace

void require_cudnn_attention(Runtime& runtime, const CudnnAttentionKind& kind) {
  runtime.cache<CudnnPlans>().plan(kind);
}

void cudnn_attention(const Execution& execution, const CudnnAttentionKind& kind, double scale,
                     const CudnnAttentionOperands& operands, std::byte* workspace) {
  using Id = CudnnAttentionTensor;
  auto& plans = execution.runtime.cache<CudnnPlans>();
  const CudnnAttentionPlan& plan = plans.plan(kind);
  const CudnnLibrary& library = plans.library();

  const CudnnWorkspace sizes(kind);
  std::byte* const delta = aligned(workspace);
  std::byte* const of_q_sum = delta + sizes.delta;
  // Numbers are read when the work is put into the stream.
  const auto factor = static_cast<float>(scale);
  const float nothing = -std::numeric_limits<float>::infinity(), one = 1;
  VariantPack pack(library);
  pack.add(Id::q, operands.q);
  pack.add(Id::k, operands.k);
  pack.add(Id::v, operands.v);
  pack.add(Id::output, operands.output);
  pack.add(Id::log_sum_exp, operands.log_sum_exp);
  pack.add(Id::document_starts, operands.document_starts);
  pack.add(Id::of_output, operands.of_output);
  pack.add(Id::of_q, operands.of_q);
  pack.add(Id::of_k, operands.of_k);
  pack.add(Id::of_v, operands.of_v);
  pack.add(Id::delta, sizes.delta > 0 ? delta : nullptr);
  pack.add(Id::of_q_sum, sizes.of_q_sum > 0 ? of_q_sum : nullptr);
  pack.add(Id::scale, &factor);
  pack.add(Id::nothing, &nothing);
  pack.add(Id::one, kind.backward ? &one : nullptr);
  library.check(
      library.set_stream(plans.handle(), static_cast<cudaStream_t>(execution.stream->handle())),
      "take a stream");
  library.check(library.execute(plans.handle(), plan.get(), pack.finish(of_q_sum + sizes.of_q_sum)),
                "run attention");
}

}  // namespace tessera
