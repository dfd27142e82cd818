#include "ops/collective/convert.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/words.h"
#include "ops/collective/move.h"
#include "ops/labels.h"
#include "ops/support.h"

namespace tessera {
namespace {

// A conversion becomes one of two kinds of nodes. If nothing moves on this mesh, a Retype gives the
// memory another type. Otherwise the operation of its Movement (ops/collective/move.h) runs. A
// Cross describes a value by another MeshView. The functions at the end convert parameters for
// their use, and say over which axes a value is to be summed.

/// The base of Retype and Cross, whose output is the input's memory under another type.
class SameMemory : public Operation {
 public:
  std::string labels(std::span<const Spec> inputs) const override {
    return fmt::format("~{0} -> {0}", element_labels(inputs[0].shape.rank()));
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override { return {inputs[0]}; }
  bool takes_wide_gradients() const override { return true; }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  std::optional<View> view(int) const override { return View{.retyped = true}; }
  void run(const Execution&) const override {}
};

/// Returns whether a conversion leaves every rank's memory as it is on any number of ranks.
bool always_keeps_memory(const Conversion& conversion) {
  return movement(conversion) == Movement::nothing;
}

/// The operation of conversions that move nothing on this mesh.
class Retype final : public SameMemory {
 public:
  explicit Retype(std::vector<Conversion> conversions) : conversions_(std::move(conversions)) {}
  std::string_view name() const override { return "retype"; }
  std::optional<View> view(int) const override {
    return View{.retyped = true, .elided = !std::ranges::all_of(conversions_, always_keeps_memory)};
  }

  std::optional<std::vector<Distribution>> distributions(
      const Mesh& mesh, std::span<const TypedOperand> inputs) const override {
    return std::vector{converted(mesh, inputs[0], conversions_)};
  }
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    const Distribution before = builder.spec(self.inputs[0]).distribution;
    return {convert_all(builder, output_gradients[0], duals(conversions_, before))};
  }

 private:
  std::vector<Conversion> conversions_;
};

/// The operation of cross(): the value in another view of the mesh.
class Cross final : public SameMemory {
 public:
  explicit Cross(MeshView view) : view_(view) {}
  std::string_view name() const override { return "cross"; }

  std::optional<std::vector<Distribution>> distributions(
      const Mesh& mesh, std::span<const TypedOperand> inputs) const override {
    return std::vector{crossed(mesh, inputs[0], view_)};
  }
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> output_gradients) const override {
    return {cross(builder, output_gradients[0], builder.spec(self.inputs[0]).distribution.view())};
  }

 private:
  MeshView view_;
};

/// Returns whether a conversion leaves every rank's memory as it is on this mesh.
bool keeps_memory(const Mesh& mesh, const Conversion& conversion) {
  return mesh.size(conversion.axis) == 1 || always_keeps_memory(conversion);
}

/// Throws DistributionError if a conversion would join rows whose number is known only at run time,
/// such as the rows that a rank's experts get. A rank reserves memory for all rows that it could
/// get, so the offset of its rows in the whole value is unknown.
void refuse_run_time_rows(const Builder& builder, Value value,
                          std::span<const Conversion> conversions) {
  const ValueInfo& info = builder.program().info(value);
  if (!info.has_run_time_rows) return;
  for (const Conversion& conversion : conversions) {
    const TypeOnAxis& before = info.spec.distribution.on(conversion.axis);
    if (!before.split() || before.dim != 0) continue;
    throw DistributionError(
        fmt::format("{} -> {} on {}: '{}' is {}, and the number of its rows is known only at run "
                    "time, so pieces of dim 0 make no whole; send the rows back first",
                    word(conversion.from), word(conversion.to.placement),
                    builder.program().mesh().name(conversion.axis), info.name, before.text()));
  }
}

/// Throws DistributionError if a conversion would make rows of an exchange. An exchange decides the
/// order of its rows, and the pieces of a scattered sum would have another order.
void refuse_exchange_rows(const Builder& builder, Value value, const Conversion& conversion) {
  const TypeOnAxis& to = conversion.to;
  if (to.placement != Placement::varying || to.pieces.kind != PieceKind::exchange) return;
  const Program& program = builder.program();
  throw DistributionError(
      fmt::format("{} -> {} on {}: '{}' would become {}; only the gradient of their gather makes "
                  "rows of an exchange out of a sum; expected tokens, or exchange the rows",
                  word(conversion.from), word(to.placement), program.mesh().name(conversion.axis),
                  program.info(value).name, to.text()));
}

}  // namespace

std::shared_ptr<const Operation> make_retype(std::vector<Conversion> conversions) {
  return std::make_shared<Retype>(std::move(conversions));
}

Value convert_all(Builder& builder, Value value, std::span<const Conversion> conversions,
                  Lane lane) {
  const Mesh& mesh = builder.program().mesh();
  const ValueInfo& info = builder.program().info(value);
  converted(mesh, {info.name, info.spec, info.differentiable}, conversions);  // checks the types
  refuse_run_time_rows(builder, value, conversions);
  // A Retype has one View::elided for all its conversions, so either all of them would move
  // something on more ranks, or none.
  const auto in_one_node = [&](const Conversion& conversion) {
    return keeps_memory(mesh, conversion) &&
           always_keeps_memory(conversion) == always_keeps_memory(conversions.front());
  };
  if (std::ranges::all_of(conversions, in_one_node)) {
    return builder.apply_single(make_retype({conversions.begin(), conversions.end()}), {value});
  }
  // Sums over several axes are taken at once.
  if (conversions.size() > 1 && std::ranges::all_of(conversions, [](const Conversion& conversion) {
        return movement(conversion) == Movement::all_reduce;
      })) {
    return builder.apply_single(
        make_operation(plan_move(builder.program(), value, conversions, lane)), {value});
  }
  for (const Conversion& conversion : conversions) {
    std::shared_ptr<const Operation> operation = make_retype({conversion});
    if (!keeps_memory(mesh, conversion)) {
      Move move = plan_move(builder.program(), value, {&conversion, 1}, lane);
      if (!move.stays()) operation = make_operation(std::move(move));
    }
    value = builder.apply_single(std::move(operation), {value});
  }
  return value;
}

Value convert(Builder& builder, Value value, Axis axis, Placement from, const TypeOnAxis& to,
              Lane lane) {
  const Conversion conversion[] = {{axis, from, to}};
  refuse_exchange_rows(builder, value, conversion[0]);
  return convert_all(builder, value, conversion, lane);
}

Value cross(Builder& builder, Value value, MeshView view) {
  if (builder.spec(value).distribution.view() == view) return value;
  return builder.apply_single(std::make_shared<Cross>(view), {value});
}

std::vector<Axis> axes_of_sum(const Builder& builder, Value value,
                              std::initializer_list<Placement> accepted) {
  const Mesh& mesh = builder.program().mesh();
  const ValueInfo& info = builder.program().info(value);
  std::vector<Axis> axes;
  for (const Axis axis : mesh.axes_of(info.spec.distribution.view())) {
    const TypeOnAxis& type = info.spec.distribution.on(axis);
    if (type.placement == Placement::partial) {
      axes.push_back(axis);
    } else if (std::ranges::find(accepted, type.placement) == accepted.end()) {
      std::string expected(word(Placement::partial));
      for (const Placement other : accepted) expected += fmt::format(" or {}", word(other));
      throw DistributionError(fmt::format("the sum of '{}', which is {} on {}; expected {}",
                                          info.name, type.text(), mesh.name(axis), expected));
    }
  }
  return axes;
}

Value use(Builder& builder, Value value, std::span<const Axis> axes) {
  std::vector<Conversion> conversions;
  for (const Axis axis : axes) {
    if (builder.spec(value).distribution.on(axis).placement != Placement::invariant) continue;
    conversions.push_back({axis, Placement::invariant, replicated()});
  }
  return conversions.empty() ? value : convert_all(builder, value, conversions);
}

Value use_like(Builder& builder, Value value, Value like) {
  const Distribution distribution = builder.spec(like).distribution;
  std::vector<Axis> axes;
  for (const Axis axis : builder.program().mesh().axes_of(distribution.view())) {
    if (distribution.on(axis).placement != Placement::invariant) axes.push_back(axis);
  }
  return use(builder, value, axes);
}

}  // namespace tessera
