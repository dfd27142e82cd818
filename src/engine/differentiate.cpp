#include "engine/differentiate.h"

#include <algorithm>

#include "base/error.h"
#include "ops/elementwise/elementwise.h"

namespace tessera {
namespace {

class Differentiation {
 public:
  Differentiation(Builder& builder, std::span<const Value> wanted)
      : builder_(builder), wanted_(wanted), contributions_(builder.program().values().size()) {}

  void contribute(Value value, Value gradient) {
    if (!gradient) return;
    TESSERA_CHECK(builder_.spec(gradient).shape == builder_.spec(value).shape,
                  "the gradient of {} has the shape {} instead of {}",
                  builder_.program().info(value).name, builder_.spec(gradient).shape.text(),
                  builder_.spec(value).shape.text());
    if (const Value main = builder_.main_gradient(value)) {
      if (gradient != main) accumulate(builder_, main, gradient);
    } else if (builder_.program().info(value).kind == ValueKind::computed ||
               std::ranges::find(wanted_, value) != wanted_.end()) {
      contributions_[static_cast<size_t>(value.id)].push_back(gradient);
    }
  }

  void through(const Node& node) {
    std::vector<Value> of_outputs;
    builder_.follow(node, Phase::backward);
    for (const Value output : node.outputs) of_outputs.push_back(total(output));
    if (std::ranges::none_of(of_outputs, [](Value value) { return bool(value); })) return;
    const std::vector<Value> of_inputs = node.operation->gradient(builder_, node, of_outputs);
    TESSERA_CHECK(of_inputs.size() == node.inputs.size(), "{} gave {} gradients for {} inputs",
                  node.operation->name(), of_inputs.size(), node.inputs.size());
    for (size_t i = 0; i < of_inputs.size(); ++i) contribute(node.inputs[i], of_inputs[i]);
  }

  /// The sum of what all consumers have given back, in the value's own type; null for nothing.
  Value total(Value value) {
    const std::vector<Value>& parts = contributions_[static_cast<size_t>(value.id)];
    const DType dtype = builder_.spec(value).dtype;
    if (parts.empty()) return {};
    if (parts.size() == 1) return cast(builder_, parts[0], dtype);
    return add(builder_, parts, dtype);
  }

 private:
  Builder& builder_;
  std::span<const Value> wanted_;
  std::vector<std::vector<Value>> contributions_;
};

}  // namespace

std::vector<Value> differentiate(Builder& builder, std::span<const Seed> seeds,
                                 std::span<const Value> wanted) {
  const std::vector<Node> forward = builder.program().nodes();
  TESSERA_CHECK(builder.program().forward_size() == static_cast<int>(forward.size()),
                "the program has a backward pass already");
  Differentiation differentiation(builder, wanted);
  builder.follow(forward.back(), Phase::backward);
  for (const Seed& seed : seeds) differentiation.contribute(seed.value, seed.gradient);
  for (auto node = forward.rbegin(); node != forward.rend(); ++node) {
    differentiation.through(*node);
  }
  std::vector<Value> gradients;
  for (const Value value : wanted) gradients.push_back(differentiation.total(value));
  return gradients;
}

}  // namespace tessera
