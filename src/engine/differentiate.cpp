// The backward pass. differentiate() goes through the forward nodes in reverse. For each node,
// differentiate_node() sums the gradients of its outputs and asks the operation for the gradients
// of its inputs. The gradient of a parameter, or of a view of one, is added into its main gradient
// at once. The gradient of a computed value is noted until the node that made the value is reached.
// The gradient of a view of a computed value becomes a part of that value's gradient.

#include "engine/differentiate.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "program/view.h"

namespace tessera {
namespace {

/// Builds the backward pass: the seeds first, then the nodes in reverse.
class Differentiation {
 public:
  Differentiation(Builder& builder, std::span<const Value> wanted)
      : builder_(builder),
        wanted_(wanted),
        contributions_(builder.program().values().size()),
        parts_(builder.program().values().size()) {
    // Views of a view add their gradients to the base, so the view's own total would lack them.
    for (const Value value : wanted) {
      TESSERA_CHECK(!builder.program().info(value).view, "the gradient of the view {} is wanted",
                    builder.program().info(value).name);
    }
    find_wholes();
    find_computed_weights();
  }

  void contribute_seed(const Seed& seed) {
    if (seed.kind == SeedKind::loss) require_loss_type(seed.value);
    contribute("differentiate", seed.value, seed.gradient);
  }

  /// Adds a gradient that an operation gives for a value.
  void contribute(std::string_view operation, Value value, Value gradient) {
    if (!gradient) return;
    TESSERA_CHECK(builder_.spec(gradient).shape == builder_.spec(value).shape,
                  "the gradient of {} has the shape {} instead of {}",
                  builder_.program().info(value).name, builder_.spec(gradient).shape.text(),
                  builder_.spec(value).shape.text());
    require_dual_type(operation, value, gradient);
    if (const Value main = builder_.main_gradient_of_any_type(value)) {
      if (gradient != main) accumulate(builder_, main, as_addend(gradient, main));
    } else if (needs_gradient(value)) {
      contributions_[static_cast<size_t>(value.id)].push_back(gradient);
    }
  }

  /// Appends the gradient of a node, if anything depends on its outputs.
  void differentiate_node(const Node& node) {
    std::vector<Value> output_gradients;
    builder_.enter_block_of(node, Phase::backward);
    for (const Value output : node.outputs) {
      const Value frame_gradient = builder_.frame_gradient(output);
      output_gradients.push_back(frame_gradient ? frame_gradient : total(output));
    }
    if (std::ranges::none_of(output_gradients, [](Value value) { return bool(value); })) return;
    if (is_part(node)) {
      contribute_part(node.outputs[0], output_gradients[0]);
      return;
    }
    const std::vector<Value> input_gradients =
        node.operation->gradient(builder_, node, output_gradients);
    TESSERA_CHECK(input_gradients.size() == node.inputs.size(),
                  "{} gave {} gradients for {} inputs", node.operation->name(),
                  input_gradients.size(), node.inputs.size());
    for (size_t i = 0; i < input_gradients.size(); ++i) {
      contribute(node.operation->name(), node.inputs[i], input_gradients[i]);
    }
  }

  /// Returns the sum of the gradients from all consumers; null if there are none. It has the
  /// value's own dtype. The gradient of a computed weight has the accumulation dtype.
  Value total(Value value) {
    const auto id = static_cast<size_t>(value.id);
    std::vector<Value> addends = contributions_[id];
    const Parts& parts = parts_[id];
    if (!parts.gradients.empty()) {
      addends.push_back(join_parts(builder_, parts.gradients, parts.firsts,
                                   builder_.spec(value).shape,
                                   builder_.spec(value).distribution.dual()));
    }
    DType dtype = builder_.spec(value).dtype;
    if (computed_weights_[id]) dtype = accumulation_dtype(dtype);
    if (addends.empty()) return {};
    if (addends.size() == 1) return cast(builder_, addends[0], dtype);
    return add(builder_, addends, dtype);
  }

 private:
  /// Returns whether a node's output is a view of its input that is not retyped (see View).
  static bool is_part(const Node& node) {
    const std::optional<View> view = node.operation->view(0);
    return view && !view->retyped;
  }

  /// Returns a weight's gradient as it is added into the main gradient. Where other uses of the
  /// weight make the main gradient partial and this gradient is invariant, one rank alone adds it.
  Value as_addend(Value gradient, Value main) {
    const Distribution distribution = builder_.spec(gradient).distribution;
    const Distribution main_distribution = builder_.spec(main).distribution;
    for (const Axis axis : builder_.program().mesh().axes_of(distribution.view())) {
      if (distribution.on(axis) != invariant() || main_distribution.on(axis) != partial()) continue;
      gradient = convert(builder_, gradient, axis, Placement::invariant, partial());
    }
    return gradient;
  }

  /// Throws unless a loss is invariant or partial on every axis.
  void require_loss_type(Value loss) const {
    const Mesh& mesh = builder_.program().mesh();
    const Distribution& distribution = builder_.spec(loss).distribution;
    for (const Axis axis : mesh.axes_of(distribution.view())) {
      const TypeOnAxis& type = distribution.on(axis);
      if (type.placement == Placement::invariant || type.placement == Placement::partial) continue;
      throw DistributionError(
          fmt::format("differentiate: the loss '{}' is {} on {}; expected invariant or partial",
                      builder_.program().info(loss).name, type.text(), mesh.name(axis)));
    }
  }

  /// Throws unless the distribution of a gradient is the dual of its value's.
  void require_dual_type(std::string_view operation, Value value, Value gradient) const {
    const Program& program = builder_.program();
    const Distribution expected = builder_.spec(value).distribution.dual();
    if (builder_.spec(gradient).distribution == expected) return;
    throw DistributionError(fmt::format(
        "{}: the gradient of '{}' is {}; expected {}", operation, program.info(value).name,
        builder_.spec(gradient).distribution.text(program.mesh()), expected.text(program.mesh())));
  }

  /// The gradients of a value's views, and the element of the value at which each view begins.
  struct Parts {
    std::vector<Value> gradients;
    std::vector<int64_t> firsts;
  };

  /// Returns whether the gradients of a value that is no parameter are noted.
  bool needs_gradient(Value value) const {
    return builder_.program().info(value).kind == ValueKind::computed ||
           std::ranges::find(wanted_, value) != wanted_.end();
  }

  /// Notes the gradient of a view as a part of the whole value's gradient. Views of a parameter are
  /// skipped, because their gradients are parts of the main gradient.
  void contribute_part(Value part, Value gradient) {
    const Value whole = wholes_[static_cast<size_t>(part.id)];
    if (!needs_gradient(whole)) return;
    const Program& program = builder_.program();
    const auto offset = [&](Value value) {
      const std::optional<ViewOf>& view = program.info(value).view;
      return view ? view->byte_offset : 0;
    };
    Parts& parts = parts_[static_cast<size_t>(whole.id)];
    parts.gradients.push_back(gradient);
    parts.firsts.push_back((offset(part) - offset(whole)) / dtype_size(program.spec(whole).dtype));
  }

  /// Finds the whole of each part, and of each part of a part. A whole may be a view under another
  /// type (View::retyped): it has its own gradient.
  void find_wholes() {
    const Program& program = builder_.program();
    for (size_t id = 0; id < program.values().size(); ++id) {
      wholes_.push_back(Value{static_cast<int>(id)});
    }
    for (const Node& node : program.nodes()) {
      if (node.outputs.empty() || !is_part(node)) continue;
      const Value input = node.inputs[static_cast<size_t>(node.operation->view(0)->input)];
      wholes_[static_cast<size_t>(node.outputs[0].id)] = wholes_[static_cast<size_t>(input.id)];
    }
  }

  /// Finds floating-point values that are weights in another form, such as parts of gathered units.
  void find_computed_weights() {
    const Program& program = builder_.program();
    computed_weights_.assign(program.values().size(), false);
    const auto is_weight = [&](Value value) {
      return program.info(value).kind == ValueKind::parameter ||
             computed_weights_[static_cast<size_t>(value.id)];
    };
    for (const Node& node : program.nodes()) {
      if (!node.operation->takes_wide_gradients()) continue;
      // A gather may keep copies of weights, and the version of these, in states.
      std::vector<Value> weights = node.inputs;
      std::erase_if(weights,
                    [&](Value value) { return program.info(value).kind == ValueKind::state; });
      if (weights.empty() || !std::ranges::all_of(weights, is_weight)) continue;
      for (const Value output : node.outputs) {
        computed_weights_[static_cast<size_t>(output.id)] = is_floating(program.spec(output).dtype);
      }
    }
  }

  Builder& builder_;
  std::span<const Value> wanted_;
  std::vector<std::vector<Value>> contributions_;  // by value of the forward pass: its gradients
  std::vector<Parts> parts_;                       // by value of the forward pass
  std::vector<Value> wholes_;                      // by value of the forward pass
  std::vector<bool> computed_weights_;             // by value of the forward pass
};

}  // namespace

std::vector<Value> differentiate(Builder& builder, std::span<const Seed> seeds,
                                 std::span<const Value> wanted) {
  const std::vector<Node> forward = builder.program().nodes();  // a copy: nodes are appended
  TESSERA_CHECK(builder.program().forward_size() == static_cast<int>(forward.size()),
                "the program has a backward pass already");
  Differentiation differentiation(builder, wanted);
  // Nodes that convert or add the seeds belong to the block of the last node.
  builder.enter_block_of(forward.back(), Phase::backward);
  for (const Seed& seed : seeds) differentiation.contribute_seed(seed);
  for (auto node = forward.rbegin(); node != forward.rend(); ++node) {
    differentiation.differentiate_node(*node);
  }
  std::vector<Value> gradients;
  for (const Value value : wanted) gradients.push_back(differentiation.total(value));
  return gradients;
}

}  // namespace tessera
