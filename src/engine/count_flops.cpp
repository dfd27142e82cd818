#include "engine/count_flops.h"

namespace tessera {

FlopCount count_flops(const Program& program) {
  FlopCount count;
  for (const Node& node : program.nodes()) {
    const Cost cost = node_cost(program, node);
    count.repeated += cost.repeated_flops;
    switch (node.phase) {
      case Phase::forward:
        count.forward += cost.flops - cost.backward_flops;
        count.backward += cost.backward_flops;
        break;
      case Phase::backward:
        count.backward += cost.flops;
        break;
      case Phase::update:
        break;  // its products are not the model's, so they are repeated_flops
      case Phase::recompute:
        count.repeated += cost.flops;
        break;
    }
  }
  return count;
}

}  // namespace tessera
