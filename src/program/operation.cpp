#include "program/operation.h"

#include "program/builder.h"

namespace tessera {

std::vector<Value> Operation::gradient(Builder&, const Node& self, std::span<const Value>) const {
  return std::vector<Value>(self.inputs.size());
}

std::optional<std::vector<Distribution>> Operation::distributions(
    const Mesh&, std::span<const TypedOperand>) const {
  return std::nullopt;
}

std::vector<Value> Operation::recompute_inputs(const Node& self, std::span<const Value>) const {
  return self.inputs;
}

std::vector<Value> Operation::recompute(Builder& builder, const Node& self,
                                        std::span<const Value> inputs,
                                        std::span<const Value>) const {
  return builder.apply(self.operation, {inputs.begin(), inputs.end()});
}

void Operation::require_runnable(Runtime&, std::span<const Spec>) const {}

int64_t Operation::workspace_bytes(const Target&, std::span<const Spec>) const { return 0; }

std::optional<View> Operation::view(int) const { return std::nullopt; }

int Operation::in_place_input(int) const { return -1; }

}  // namespace tessera
