#include "ops/host_target.h"

#include "ops/gemm/gemm.h"
#include "ops/gemm/gemm_plan.h"

namespace tessera {

Target host_target(int threads, Kernels kernels, Device device) {
  return {.device = device,
          .kernels = kernels,
          .threads = threads,
          .instructions = host_instructions(),
          .caches = cache_sizes()};
}

}  // namespace tessera
