#include "program/operation.h"

#include <algorithm>

#include "base/error.h"
#include "program/builder.h"
#include "program/matrix_products.h"

namespace tessera {

double operand_bytes(std::span<const Spec> inputs, std::span<const Spec> outputs,
                     std::span<const int> updated) {
  double bytes = 0;
  for (const Spec& spec : inputs) bytes += static_cast<double>(spec.bytes());
  for (const Spec& spec : outputs) bytes += static_cast<double>(spec.bytes());
  for (const int input : updated) {
    bytes += static_cast<double>(inputs[static_cast<size_t>(input)].bytes());
  }
  return bytes;
}

Communicator& Execution::group() const {
  TESSERA_CHECK(groups.size() == 1, "{} meets {} groups of ranks; expected one", name,
                groups.size());
  return *groups.front();
}

Cost Operation::cost(std::span<const Spec> inputs, std::span<const Spec> outputs) const {
  const std::vector<int> updated = updated_inputs();
  std::vector<Shape> operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (std::ranges::find(updated, static_cast<int>(i)) != updated.end()) continue;
    operands.push_back(inputs[i].shape);
  }
  return {.flops = matrix_product_flops(parse_labels(labels(inputs)), operands),
          .bytes = operand_bytes(inputs, outputs, updated)};
}

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
