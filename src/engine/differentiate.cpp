#include "engine/differentiate.h"

#include <algorithm>

#include "base/error.h"
#include "ops/elementwise/elementwise.h"

namespace tessera {
namespace {

class Differentiation {
 public:
  explicit Differentiation(Builder& builder)
      : builder_(builder), contributions_(builder.program().values().size()) {}

  void contribute(Value value, Value gradient) {
    if (!gradient) return;
    TESSERA_CHECK(builder_.spec(gradient).shape == builder_.spec(value).shape,
                  "the gradient of {} has the shape {} instead of {}",
                  builder_.program().info(value).name, builder_.spec(gradient).shape.text(),
                  builder_.spec(value).shape.text());
    switch (builder_.program().info(value).kind) {
      case ValueKind::parameter: {
        const Value main = builder_.main_gradient(value);
        if (gradient != main) accumulate(builder_, main, gradient);
        break;
      }
      case ValueKind::computed:
        contributions_[static_cast<size_t>(value.id)].push_back(gradient);
        break;
      default:
        break;
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

 private:
  Value total(Value value) {
    const std::vector<Value>& parts = contributions_[static_cast<size_t>(value.id)];
    const DType dtype = builder_.spec(value).dtype;
    if (parts.empty()) return {};
    if (parts.size() == 1) return cast(builder_, parts[0], dtype);
    return add(builder_, parts, dtype);
  }

  Builder& builder_;
  std::vector<std::vector<Value>> contributions_;
};

}  // namespace

void differentiate(Builder& builder, std::span<const Seed> seeds) {
  const std::vector<Node> forward = builder.program().nodes();
  TESSERA_CHECK(builder.program().forward_size() == static_cast<int>(forward.size()),
                "the program has a backward pass already");
  Differentiation differentiation(builder);
  builder.follow(forward.back(), Phase::backward);
  for (const Seed& seed : seeds) differentiation.contribute(seed.value, seed.gradient);
  for (auto node = forward.rbegin(); node != forward.rend(); ++node) {
    differentiation.through(*node);
  }
}

}  // namespace tessera
