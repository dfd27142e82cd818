#include "plan/run_target.h"

#include "ops/host_target.h"

namespace tessera {

Target run_target(const RunConfig& config) {
  Target target = host_target(static_cast<int>(config.run.threads));
  target.device = config.run.device;
  target.deterministic = config.run.deterministic;
  return target;
}

}  // namespace tessera
