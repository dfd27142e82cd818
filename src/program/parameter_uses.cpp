#include "program/parameter_uses.h"

#include <algorithm>

#include "base/error.h"

namespace tessera {
namespace {

/// Returns whether a node only gives memory another name, and would do only that on more ranks too.
bool only_renames(const Program& program, const Node& node) {
  const std::optional<ViewOf>& view = program.info(node.outputs[0]).view;
  return view && view->converted != node.outputs[0];
}

}  // namespace

const std::vector<Value>& ParameterUses::of(Value parameter) {
  read_on();
  return uses_[parameter.id];
}

Value ParameterUses::declared(const ViewOf& part, const Shape& shape) {
  read_on();
  const std::vector<Value>& views = views_[part.base.id];
  const auto found = std::ranges::find_if(views, [&](Value view) {
    const ValueInfo& info = program_.info(view);
    return *info.view == part && info.spec.shape == shape;
  });
  TESSERA_CHECK(found != views.end(), "'{}' has no such part", program_.info(part.base).name);
  return *found;
}

const Node& ParameterUses::maker(Value value) {
  read_on();
  const auto found = makers_.find(value.id);
  TESSERA_CHECK(found != makers_.end(), "no node makes '{}'", program_.info(value).name);
  return program_.nodes()[found->second];
}

void ParameterUses::forget() {
  nodes_ = values_ = 0;
  uses_.clear();
  views_.clear();
  makers_.clear();
}

void ParameterUses::read_on() {
  for (; values_ < program_.values().size(); ++values_) {
    const std::optional<ViewOf>& view = program_.values()[values_].view;
    if (view) views_[view->base.id].push_back(Value{static_cast<int>(values_)});
  }
  for (; nodes_ < program_.nodes().size(); ++nodes_) {
    const Node& node = program_.nodes()[nodes_];
    for (const Value output : node.outputs) makers_[output.id] = nodes_;
    if (node.outputs.empty() || only_renames(program_, node)) continue;
    for (const Value input : node.inputs) {
      const ValueInfo& read = program_.info(input);
      if (in_stored_memory(read)) uses_[program_.base(input).id].push_back(input);
    }
  }
}

}  // namespace tessera
