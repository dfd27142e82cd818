#include "plan/run_target.h"

#include "ops/host_target.h"

namespace tessera {

std::unique_ptr<Accelerator> open_device(const RunConfig& config) {
  return config.run.device == Device::cpu ? nullptr : open_accelerator(config.run.device);
}

Target run_target(const RunConfig& config) {
  return host_target(static_cast<int>(config.run.threads), Kernels::fast, config.run.device);
}

}  // namespace tessera
