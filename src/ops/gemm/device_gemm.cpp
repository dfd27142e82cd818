#include "ops/gemm/device_gemm.h"

#include "ops/gemm/gemm_plan.h"

namespace tessera {

void device_gemm(const Execution& execution, const GemmShape& shape, const void* a, const void* b,
                 void* c, std::byte* workspace) {
  TESSERA_CHECK(execution.stream->device() == Device::emulated,
                "no matrix products on the device {}", word(execution.stream->device()));
  count_issued(execution.runtime, shape);
  execution.stream->enqueue([&runtime = execution.runtime, shape, a, b, c, workspace] {
    prepare_gemm(runtime, shape).run(a, b, c, workspace);
  });
}

int64_t device_gemm_workspace_bytes(const Target& target, const GemmShape& shape) {
  return gemm_workspace_bytes(target, shape);
}

}  // namespace tessera
