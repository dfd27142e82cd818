// Finds and declares main gradients. A main gradient is the value, in the accumulation dtype, into
// which the backward pass adds the gradients of a parameter.
//
// A parameter has one main gradient. The first request declares it, with a distribution that
// follows from all uses of the parameter. Each other value in the parameter's memory has a view of
// the main gradient:
//
// - a part of the parameter has the same part, under the type of the part's gradients;
// - the result of an elided conversion (see View) has the main gradient of the conversion's input,
//   under the type of the result's gradients;
// - a part of such a result has the same part of the result's main gradient.
//
// A weight that is gathered for one run, or whose gradients are reduced in each, stands for a
// parameter here (Builder::sum_in_frame()). Its gradients are added into a value of the run. So the
// *root* of a value in a parameter's memory is the parameter, or the last value on the way to it
// that an elided conversion made.
//
// Builder::main_gradient_of_any_type() distinguishes these cases. The functions before it do the
// work of one case each. ParameterUses finds the uses of a parameter.

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "program/builder.h"
#include "program/view.h"

namespace tessera {
namespace {

/// Returns the last value between a value and its base that an elided conversion made; the base if
/// there is none.
Value root_of(const Program& program, Value value) {
  const std::optional<ViewOf>& view = program.info(value).view;
  return view && view->converted ? view->converted : program.base(value);
}

/// Returns whether a node only gives memory another name, whatever the number of ranks.
bool only_renames(const Program& program, const Node& node) {
  const std::optional<ViewOf>& view = program.info(node.outputs[0]).view;
  return view && view->converted != node.outputs[0];
}

/// Returns the distribution of a parameter's main gradient: the dual of the parameter's, but
/// partial on the axes where a use of the parameter or of its parts is replicated. With uses in
/// both views of the mesh the main gradient crosses between them, so it has one type over all axes:
/// it is partial on all if a use is replicated on any.
Distribution main_gradient_distribution(const Program& program, Value parameter,
                                        std::span<const Value> uses) {
  const Mesh& mesh = program.mesh();
  Distribution result = program.spec(parameter).distribution.dual();
  bool crosses = false;
  bool replicated_in_other_view = false;
  for (const Value use : uses) {
    const Distribution& used = program.spec(use).distribution;
    const bool in_other_view = used.view() != result.view();
    crosses = crosses || in_other_view;
    for (const Axis axis : mesh.axes_of(used.view())) {
      if (used.on(axis) != replicated()) continue;
      replicated_in_other_view = replicated_in_other_view || in_other_view;
      if (!in_other_view) result = result.with(axis, partial());
    }
  }
  if (!crosses) return result;
  const auto axes = mesh.axes_of(result.view());
  const auto is_sum = [&](Axis axis) { return result.on(axis) == partial(); };
  if (!replicated_in_other_view && std::ranges::none_of(axes, is_sum)) return result;
  for (const Axis axis : axes) {
    if (result.on(axis) == invariant()) result = result.with(axis, partial());
  }
  return result;
}

/// Returns the distribution in which gradients of a value are added into a main gradient: the dual
/// of the value's distribution `value`. But it is partial where the dual is invariant and other
/// uses of the parameter make the main gradient, with the distribution `main`, partial.
Distribution addend_distribution(const Mesh& mesh, const Distribution& value,
                                 const Distribution& main) {
  Distribution result = value.dual();
  for (const Axis axis : mesh.axes_of(result.view())) {
    const bool others_sum = main.on(axis) == partial() && result.on(axis) == invariant();
    if (others_sum) result = result.with(axis, partial());
  }
  return result;
}

/// Returns whether two distributions are the same on all axes of several ranks.
bool same_on_several_ranks(const Mesh& mesh, const Distribution& a, const Distribution& b) {
  return a.view() == b.view() && std::ranges::all_of(mesh.axes_of(a.view()), [&](Axis axis) {
           return mesh.size(axis) == 1 || a.on(axis) == b.on(axis);
         });
}

/// Returns the part of a parameter's main gradient that belongs to `part`, a view of the parameter.
Value part_gradient(Builder& builder, Value main, const ValueInfo& part, const std::string& name) {
  const int64_t first = part.view->byte_offset / dtype_size(part.spec.dtype);
  const Distribution whole = builder.spec(main).distribution;
  const Distribution& used = part.spec.distribution;
  if (used.view() != whole.view()) {
    // A value that crosses is not flat, so its parts have its distribution.
    const Value in_main_view = view(builder, main, first, part.spec.shape, whole, name);
    return in_view(builder, in_main_view, used.view(), name);
  }
  return view(builder, main, first, part.spec.shape,
              addend_distribution(builder.program().mesh(), used, whole), name);
}

/// Returns the main gradient of `result`, which is a view (`result_view`) of a value whose main
/// gradient is `main`. An elided conversion made the view, or it is a part of the result of one.
/// Returns null if the types of the two main gradients differ on an axis of several ranks.
Value converted_gradient(Builder& builder, Value main, const View& result_view,
                         const ValueInfo& result, const std::string& name) {
  const Mesh& mesh = builder.program().mesh();
  const Distribution whole = builder.spec(main).distribution;
  const Distribution distribution = addend_distribution(mesh, result.spec.distribution, whole);
  if (!result_view.retyped) {
    const int64_t first = result_view.byte_offset / dtype_size(result.spec.dtype);
    return view(builder, main, first, result.spec.shape, distribution, name);
  }
  // The conversion's own gradient takes a sum over several ranks.
  if (!same_on_several_ranks(mesh, distribution, whole)) return {};
  return retype_on_single_ranks(builder, main, distribution, name);
}

}  // namespace

/// Finds the uses of a program's weights, and the node that makes a value. Reads each node once,
/// also when nodes were appended since the last call.
class Builder::ParameterUses {
 public:
  explicit ParameterUses(const Program& program) : program_(program) {}

  /// Returns the values with this root that nodes read, in the order of the nodes. A node that only
  /// gives the memory another name does not count as a reader; an elided conversion does.
  const std::vector<Value>& readers_of(Value root) {
    read_new_nodes();
    return uses_[root.id];
  }

  /// Returns the first value that is this part of a root: with the same offset and shape.
  Value first_view(Value root, const ViewOf& part, const Shape& shape) {
    read_new_nodes();
    const std::vector<Value>& views = views_[root.id];
    const auto found = std::ranges::find_if(views, [&](Value view) {
      const ValueInfo& info = program_.info(view);
      return *info.view == part && info.spec.shape == shape;
    });
    TESSERA_CHECK(found != views.end(), "'{}' has no such part", program_.info(root).name);
    return *found;
  }

  /// Returns the node that made a computed value. Throws InternalError if no node did.
  const Node& maker(Value value) {
    read_new_nodes();
    const auto found = makers_.find(value.id);
    TESSERA_CHECK(found != makers_.end(), "no node makes '{}'", program_.info(value).name);
    return program_.nodes()[found->second];
  }

 private:
  void read_new_nodes() {
    for (; values_read_ < program_.values().size(); ++values_read_) {
      const Value value{static_cast<int>(values_read_)};
      const Value root = root_of(program_, value);
      if (root != value) views_[root.id].push_back(value);
    }
    for (; nodes_read_ < program_.nodes().size(); ++nodes_read_) {
      const Node& node = program_.nodes()[nodes_read_];
      for (const Value output : node.outputs) makers_[output.id] = nodes_read_;
      if (node.outputs.empty() || only_renames(program_, node)) continue;
      for (const Value input : node.inputs) uses_[root_of(program_, input).id].push_back(input);
    }
  }

  const Program& program_;
  size_t nodes_read_ = 0;
  size_t values_read_ = 0;
  std::map<int, std::vector<Value>> uses_;   // by the root's id
  std::map<int, std::vector<Value>> views_;  // by the root's id
  std::map<int, size_t> makers_;             // by the value's id
};

Builder::ParameterUses& Builder::uses() {
  if (!uses_) uses_ = std::make_shared<ParameterUses>(program_);
  return *uses_;
}

bool Builder::has_own_gradient(Value value) const {
  return program_.info(value).kind == ValueKind::parameter || frame_roots_.contains(value.id);
}

Value Builder::declare_main_gradient(Value parameter, const Shape& shape,
                                     const Distribution& distribution) {
  const auto known = program_.main_gradients_.find(parameter.id);
  if (known != program_.main_gradients_.end()) return known->second;
  const ValueInfo& info = program_.info(parameter);
  Spec spec{shape, accumulation_dtype(info.spec.dtype), distribution};
  const Value gradient =
      add_value("gradient:" + info.name, std::move(spec), ValueKind::main_gradient);
  program_.main_gradients_.emplace(parameter.id, gradient);
  return gradient;
}

Value Builder::frame_gradient(Value root) const {
  const auto known = program_.main_gradients_.find(root.id);
  const bool sums = frame_roots_.contains(root.id) && known != program_.main_gradients_.end();
  return sums ? known->second : Value{};
}

Value Builder::gradient_of_root(Value root, const Distribution& distribution) {
  const auto known = program_.main_gradients_.find(root.id);
  if (known != program_.main_gradients_.end()) return known->second;
  const Spec weight = program_.spec(root);
  const auto zeros_of = frame_roots_.find(root.id);
  if (zeros_of == frame_roots_.end()) {
    return declare_main_gradient(root, weight.shape, distribution);
  }
  const Value gradient =
      zeros_of->second({weight.shape, accumulation_dtype(weight.dtype), distribution});
  program_.main_gradients_.emplace(root.id, gradient);
  return gradient;
}

Value Builder::main_gradient_of_any_type(Value value) {
  const auto known = program_.main_gradients_.find(value.id);
  if (known != program_.main_gradients_.end()) return known->second;
  const Value root = root_of(program_, value);
  if (!has_own_gradient(root) && !has_own_gradient(program_.base(value))) return {};
  const ValueInfo info = program_.info(value);  // a copy: views are appended below
  Value gradient;
  if (has_own_gradient(root)) {
    std::vector<Value> readers = uses().readers_of(root);
    readers.push_back(value);
    gradient = gradient_of_root(root, main_gradient_distribution(program_, root, readers));
    if (value == root) return gradient;
    // The part may be used under several types. The first view of it gives the name.
    const Value first_view = uses().first_view(root, *info.view, info.spec.shape);
    gradient = part_gradient(*this, gradient, info, "gradient:" + program_.info(first_view).name);
  } else {
    const Node& maker = uses().maker(value);
    const View result_view = *maker.operation->view(0);
    const Value main =
        main_gradient_of_any_type(maker.inputs[static_cast<size_t>(result_view.input)]);
    if (main) {
      gradient = converted_gradient(*this, main, result_view, info, "gradient:" + info.name);
    }
  }
  if (gradient) program_.main_gradients_.emplace(value.id, gradient);
  return gradient;
}

Value Builder::main_gradient(Value value) {
  const Value gradient = main_gradient_of_any_type(value);
  if (!gradient) return {};
  const Distribution expected = program_.spec(value).distribution.dual();
  return program_.spec(gradient).distribution == expected ? gradient : Value{};
}

}  // namespace tessera
