#include "ops/gemm/device_gemm.h"

#include "base/error.h"
#include "ops/gemm/cublaslt_gemm.h"
#include "ops/gemm/gemm_plan.h"

namespace tessera {
namespace {

/// The 32 MiB that NVIDIA recommends for Hopper, and 256 bytes to align the beginning.
constexpr int64_t kLibraryWorkspace = (int64_t{32} << 20) + 256;

[[noreturn]] void no_products(Device device) {
  throw InternalError(fmt::format("no matrix products on the device {}", word(device)));
}

[[noreturn]] void nothing_to_tune(const Runtime& runtime) {
  throw Error(
      "the device {} has one algorithm for each matrix product, so there is nothing to tune: set "
      "run.device = \"cuda\"",
      word(runtime.target().device));
}

}  // namespace

void device_gemm(const Execution& execution, const GemmShape& shape, const void* a, const void* b,
                 void* c, std::byte* workspace) {
  count_issued(execution.runtime, shape);
  switch (execution.stream->device()) {
    case Device::emulated:
      return execution.stream->enqueue([&runtime = execution.runtime, shape, a, b, c, workspace] {
        prepare_gemm(runtime, shape).run(a, b, c, workspace);
      });
#if defined(TESSERA_CUDA)
    case Device::cuda:
      return cublaslt_gemm(execution, shape, a, b, c, workspace);
#endif
    case Device::hip:
      require_hipblaslt(execution.runtime);  // throws
    default:
      no_products(execution.stream->device());
  }
}

void require_device_gemm(Runtime& runtime) {
  switch (runtime.target().device) {
    case Device::emulated:
      return;
#if defined(TESSERA_CUDA)
    case Device::cuda:
      return require_cublaslt(runtime);
#endif
    case Device::hip:
      require_hipblaslt(runtime);  // throws
    default:
      no_products(runtime.target().device);
  }
}

int64_t device_gemm_workspace_bytes(const Target& target, const GemmShape& shape) {
  return is_gpu(target) ? kLibraryWorkspace : gemm_workspace_bytes(target, shape);
}

#if defined(TESSERA_CUDA)

std::string device_gemm_library(Runtime& runtime) {
  if (runtime.target().device != Device::cuda) nothing_to_tune(runtime);
  return cublaslt_version(runtime);
}

std::vector<GemmShape> device_gemm_shapes(Runtime& runtime) {
  if (runtime.target().device != Device::cuda) nothing_to_tune(runtime);
  return cublaslt_shapes(runtime);
}

TunedProduct tune_device_gemm(Runtime& runtime, const GemmShape& shape,
                              const TuningBudget& budget) {
  if (runtime.target().device != Device::cuda) nothing_to_tune(runtime);
  return tune_cublaslt(runtime, shape, budget);
}

#else

std::string device_gemm_library(Runtime& runtime) { nothing_to_tune(runtime); }
std::vector<GemmShape> device_gemm_shapes(Runtime& runtime) { nothing_to_tune(runtime); }
TunedProduct tune_device_gemm(Runtime& runtime, const GemmShape&, const TuningBudget&) {
  nothing_to_tune(runtime);
}

#endif

}  // namespace tessera
