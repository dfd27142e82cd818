#include "engine/action.h"

#include <algorithm>

#include "base/error.h"

namespace tessera {
namespace {

bool is_backward(const Node& node) {
  return node.phase == Phase::backward || node.phase == Phase::recompute;
}

/// Returns, by node, true for backward nodes on whose results an output of the program depends.
std::vector<bool> needed_by_outputs(const Program& program) {
  const std::vector<Node>& nodes = program.nodes();
  std::vector<bool> wanted(program.values().size(), false);
  for (const Value output : program.outputs()) wanted[static_cast<size_t>(output.id)] = true;
  std::vector<bool> needed(nodes.size(), false);
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& node = nodes[i];
    if (!is_backward(node)) continue;
    needed[i] = std::ranges::any_of(
        node.outputs, [&](Value output) { return wanted[static_cast<size_t>(output.id)]; });
    if (!needed[i]) continue;
    for (const Value input : node.inputs) wanted[static_cast<size_t>(input.id)] = true;
  }
  return needed;
}

}  // namespace

std::vector<int> segment_nodes(const Program& program, Segment segment) {
  const std::vector<bool> needed = needed_by_outputs(program);
  const auto belongs = [&](size_t index, const Node& node) {
    switch (segment) {
      case Segment::whole:
        return true;
      case Segment::forward:
        return !is_backward(node);
      case Segment::backward:
        return is_backward(node);
      case Segment::input_gradients:
        return is_backward(node) && needed[index];
      case Segment::weight_gradients:
        return is_backward(node) && !needed[index];
    }
    throw InternalError("unknown Segment");
  };
  std::vector<int> result;
  for (size_t i = 0; i < program.nodes().size(); ++i) {
    const Node& node = program.nodes()[i];
    const bool is_view = !node.outputs.empty() && program.info(node.outputs[0]).view.has_value();
    if (!is_view && belongs(i, node)) result.push_back(static_cast<int>(i));
  }
  return result;
}

}  // namespace tessera
