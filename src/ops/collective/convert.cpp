#include "ops/collective/convert.h"

#include <fmt/format.h>

#include "base/words.h"
#include "ops/labels.h"
#include "ops/support.h"

namespace tessera {
namespace {

/// An operation whose output is the input's memory under another type.
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

/// A conversion that moves nothing.
class Retype final : public SameMemory {
 public:
  explicit Retype(Conversion conversion) : conversion_(std::move(conversion)) {}
  std::string_view name() const override { return "retype"; }

  std::optional<std::vector<Distribution>> distributions(
      const Mesh& mesh, std::span<const TypedOperand> inputs) const override {
    return std::vector{converted(mesh, inputs[0], conversion_)};
  }
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> of_outputs) const override {
    const TypeOnAxis before = builder.spec(self.inputs[0]).distribution.on(conversion_.axis);
    const Conversion back = dual(conversion_, before);
    return {convert(builder, of_outputs[0], back.axis, back.from, back.to)};
  }

 private:
  Conversion conversion_;
};

class Cross final : public SameMemory {
 public:
  explicit Cross(MeshView view) : view_(view) {}
  std::string_view name() const override { return "cross"; }

  std::optional<std::vector<Distribution>> distributions(
      const Mesh& mesh, std::span<const TypedOperand> inputs) const override {
    return std::vector{crossed(mesh, inputs[0], view_)};
  }
  std::vector<Value> gradient(Builder& builder, const Node& self,
                              std::span<const Value> of_outputs) const override {
    return {cross(builder, of_outputs[0], builder.spec(self.inputs[0]).distribution.view())};
  }

 private:
  MeshView view_;
};

/// Whether a conversion leaves every rank's memory as it is.
bool moves_nothing(const Mesh& mesh, const Conversion& conversion) {
  const Placement to = conversion.to.placement;
  return mesh.size(conversion.axis) == 1 ||
         (conversion.from == Placement::invariant && to == Placement::replicated) ||
         (conversion.from == Placement::replicated && to == Placement::invariant);
}

}  // namespace

Value convert(Builder& builder, Value value, Axis axis, Placement from, const TypeOnAxis& to) {
  const Conversion conversion{axis, from, to};
  TESSERA_CHECK(moves_nothing(builder.program().mesh(), conversion), "a conversion over {} ranks",
                builder.program().mesh().size(axis));
  return builder.apply_single(std::make_shared<Retype>(conversion), {value});
}

Value cross(Builder& builder, Value value, MeshView view) {
  if (builder.spec(value).distribution.view() == view) return value;
  return builder.apply_single(std::make_shared<Cross>(view), {value});
}

Value use(Builder& builder, Value value, std::span<const Axis> axes) {
  for (const Axis axis : axes) {
    if (builder.spec(value).distribution.on(axis).placement != Placement::invariant) continue;
    value = convert(builder, value, axis, Placement::invariant, replicated());
  }
  return value;
}

Value use_like(Builder& builder, Value value, Value like) {
  const Distribution distribution = builder.spec(like).distribution;
  std::vector<Axis> axes;
  for (const Axis axis : builder.program().mesh().of_view(distribution.view())) {
    if (distribution.on(axis).placement != Placement::invariant) axes.push_back(axis);
  }
  return use(builder, value, axes);
}

Value take_sum(Builder& builder, Value value, std::span<const Axis> axes) {
  for (const Axis axis : axes) {
    value = convert(builder, value, axis, Placement::partial, invariant());
  }
  return value;
}

}  // namespace tessera
