#include "plan/run_target.h"

#include "ops/host_target.h"

namespace tessera {

Target run_target(const RunConfig& config) {
  return host_target(static_cast<int>(config.run.threads), Kernels::fast, config.run.device);
}

}  // namespace tessera
