#include <algorithm>

#include "base/error.h"
#include "program/builder.h"
#include "program/view.h"

namespace tessera {
namespace {

/// How gradients of a value lie beside others in `whole`: partial where other uses of the parameter
/// make that partial and this gradient is one.
Distribution beside_others(const Mesh& mesh, const Distribution& value, const Distribution& whole) {
  Distribution gradient = value.dual();
  for (const Axis axis : mesh.of_view(gradient.view())) {
    const bool of_others = whole.on(axis) == partial() && gradient.on(axis) == invariant();
    if (of_others) gradient = gradient.with(axis, partial());
  }
  return gradient;
}

/// Whether two types are the same but on axes of one rank.
bool same_on_several_ranks(const Mesh& mesh, const Distribution& a, const Distribution& b) {
  return a.view() == b.view() && std::ranges::all_of(mesh.of_view(a.view()), [&](Axis axis) {
           return mesh.size(axis) == 1 || a.on(axis) == b.on(axis);
         });
}

/// A main gradient that is used in both views of the mesh is of one type over all axes, as what
/// crosses is: if it is a sum over some axes, it is one over all.
Distribution partial_everywhere_or_nowhere(const Mesh& mesh, Distribution gradient,
                                           bool sums_elsewhere) {
  const auto axes = mesh.of_view(gradient.view());
  const auto is_sum = [&](Axis axis) { return gradient.on(axis) == partial(); };
  if (!sums_elsewhere && std::ranges::none_of(axes, is_sum)) return gradient;
  for (const Axis axis : axes) {
    if (gradient.on(axis) == invariant()) gradient = gradient.with(axis, partial());
  }
  return gradient;
}

}  // namespace

Value Builder::main_gradient(Value value) {
  const Value gradient = main_gradient_of_all(value);
  if (!gradient) return {};
  return program_.spec(gradient).distribution == program_.spec(value).distribution.dual() ? gradient
                                                                                          : Value{};
}

Value Builder::main_gradient_of_all(Value value) {
  const auto known = program_.main_gradients_.find(value.id);
  if (known != program_.main_gradients_.end()) return known->second;
  const Value parameter = program_.base(value);
  if (program_.info(parameter).kind != ValueKind::parameter) return {};
  const ValueInfo part = program_.info(value);
  Value gradient;
  if (in_stored_memory(part)) {
    const Value whole = main_gradient(parameter, main_gradient_type(parameter, part.spec));
    if (!part.view) return whole;
    gradient = part_of_main_gradient(part, whole);
  } else {
    gradient = main_gradient_of_converted(value);
  }
  if (gradient) program_.main_gradients_.emplace(value.id, gradient);
  return gradient;
}

Value Builder::part_of_main_gradient(const ValueInfo& part, Value whole) {
  // The part may be used under another type; it has the name under which it was declared.
  const Value declared = uses_.declared(*part.view, part.spec.shape);
  const std::string name = "gradient:" + program_.info(declared).name;
  const int64_t first = part.view->byte_offset / dtype_size(part.spec.dtype);
  const Distribution lies = program_.spec(whole).distribution;
  const MeshView used_in = part.spec.distribution.view();
  if (used_in != lies.view()) {
    // What crosses is not flat, so its parts lie as it does.
    const Value here = view(*this, whole, first, part.spec.shape, lies, name);
    return in_view(*this, here, used_in, name);
  }
  return view(*this, whole, first, part.spec.shape,
              beside_others(program_.mesh(), part.spec.distribution, lies), name);
}

Value Builder::main_gradient_of_converted(Value value) {
  const Node& maker = uses_.maker(value);
  const View lies = *maker.operation->view(0);
  const Value input = maker.inputs[static_cast<size_t>(lies.input)];
  const Value of_input = main_gradient_of_all(input);
  if (!of_input) return {};
  const ValueInfo info = program_.info(value);
  const Mesh& mesh = program_.mesh();
  const Distribution whole = program_.spec(of_input).distribution;
  const Distribution distribution = beside_others(mesh, info.spec.distribution, whole);
  const std::string name = "gradient:" + info.name;
  if (lies.retyped) {
    // A sum over several ranks is the conversion's own gradient to take.
    if (!same_on_several_ranks(mesh, distribution, whole)) return {};
    return retype_on_single_ranks(*this, of_input, distribution, name);
  }
  const int64_t first = lies.byte_offset / dtype_size(info.spec.dtype);
  return view(*this, of_input, first, info.spec.shape, distribution, name);
}

Distribution Builder::main_gradient_type(Value parameter, const Spec& use) {
  Distribution distribution = program_.spec(parameter).distribution.dual();
  bool crosses = false;
  bool sums_elsewhere = false;
  const auto add_use = [&](const Distribution& of_use) {
    const bool elsewhere = of_use.view() != distribution.view();
    crosses = crosses || elsewhere;
    for (const Axis axis : program_.mesh().of_view(of_use.view())) {
      if (of_use.on(axis) != replicated()) continue;
      sums_elsewhere = sums_elsewhere || elsewhere;
      if (!elsewhere) distribution = distribution.with(axis, partial());
    }
  };
  add_use(use.distribution);
  for (const Value used : uses_.of(parameter)) add_use(program_.spec(used).distribution);
  return crosses ? partial_everywhere_or_nowhere(program_.mesh(), distribution, sums_elsewhere)
                 : distribution;
}

Value Builder::main_gradient(Value parameter, const Distribution& distribution) {
  const auto known = program_.main_gradients_.find(parameter.id);
  if (known != program_.main_gradients_.end()) return known->second;
  const ValueInfo& info = program_.info(parameter);
  Spec spec{info.spec.shape, accumulation_dtype(info.spec.dtype), distribution};
  const Value gradient =
      add_value("gradient:" + info.name, std::move(spec), ValueKind::main_gradient);
  program_.main_gradients_.emplace(parameter.id, gradient);
  return gradient;
}

}  // namespace tessera
