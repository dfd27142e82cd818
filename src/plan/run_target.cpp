#include "plan/run_target.h"

#include "ops/host_target.h"

namespace tessera {

std::unique_ptr<Accelerator> open_device(const RunConfig& config) {
  return config.run.device == Device::cpu ? nullptr : open_accelerator(config.run.device);
}

Target run_target(const RunConfig& config, const AcceleratorFacts& facts) {
  Target target = target_of(facts);
  target.tf32 = config.train.tf32;
  target.deterministic = config.run.deterministic;
  return target;
}

Target run_target(const RunConfig& config) {
  Target target =
      host_target(static_cast<int>(config.run.threads), Kernels::fast, config.run.device);
  target.tf32 = config.train.tf32;
  target.deterministic = config.run.deterministic;
  return target;
}

}  // namespace tessera
