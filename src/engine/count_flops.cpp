#include "engine/count_flops.h"

namespace tessera {

FlopCount count_flops(const Program& program) {
  FlopCount count;
  for (const Node& node : program.nodes()) {
    const Cost cost = node.operation->cost(program.specs(node.inputs), program.specs(node.outputs));
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
        break;  // has no products yet
      case Phase::recompute:
        count.repeated += cost.flops;
        break;
    }
  }
  return count;
}

}  // namespace tessera
