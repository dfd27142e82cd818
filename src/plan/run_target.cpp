#include "plan/run_target.h"

#include "base/threads.h"
#include "ops/host_target.h"
#include "program/runtime.h"

namespace tessera {
namespace {

/// Returns the target with the configuration's choices of kernels.
Target with_choices(Target target, const RunConfig& config) {
  target.tf32 = config.train.tf32;
  target.deterministic = config.run.deterministic;
  return target;
}

}  // namespace

std::unique_ptr<Accelerator> open_device(const RunConfig& config, const LocalRank& rank) {
  return config.run.device == Device::cpu ? nullptr
                                          : open_accelerator(config.run.device, "run.device", rank);
}

Target run_target(const RunConfig& config, const AcceleratorFacts& facts) {
  return with_choices(target_of(facts), config);
}

Target run_target(const RunConfig& config, const Accelerator* accelerator, int ranks) {
  const int threads = threads_of_rank(static_cast<int>(config.run.threads), ranks);
  Target target = host_target(threads, Kernels::fast, config.run.device);
  if (accelerator != nullptr) target = with_accelerator(target, *accelerator);
  return with_choices(target, config);
}

}  // namespace tessera
