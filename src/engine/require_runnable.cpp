#include "engine/require_runnable.h"

namespace tessera {

void require_runnable(std::span<const Program* const> programs, Runtime& runtime) {
  if (runtime.accelerator() == nullptr) return;
  for (const Program* const program : programs) {
    for (const Node& node : program->nodes()) {
      node.operation->require_runnable(runtime, program->specs(node.inputs));
    }
  }
}

}  // namespace tessera
