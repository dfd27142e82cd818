#include "engine/action.h"

#include <algorithm>
#include <set>

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

/// The values that a node reads or writes, by the id of the value that owns the memory.
struct TouchedMemory {
  TouchedMemory(const Program& program, const Node& node) {
    const auto base = [&](Value value) { return program.base(value).id; };
    for (const Value output : node.outputs) written.insert(base(output));
    for (const int input : node.operation->updated_inputs()) {
      written.insert(base(node.inputs[static_cast<size_t>(input)]));
    }
    all = written;
    for (const Value input : node.inputs) all.insert(base(input));
  }

  bool conflicts_with(const TouchedMemory& other) const {
    const auto overlap = [](const std::set<int>& a, const std::set<int>& b) {
      return std::ranges::any_of(a, [&](int value) { return b.contains(value); });
    };
    return overlap(written, other.all) || overlap(all, other.written);
  }

  std::set<int> written;
  std::set<int> all;  // written or read
};

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

Joins find_joins(const Program& program, std::span<const int> nodes) {
  struct Pending {
    int step;
    TouchedMemory touched;
  };
  const auto step_count = static_cast<int>(nodes.size());
  Joins joins{.awaited = std::vector<int>(nodes.size(), -1), .busy_until = {}};
  for (int step = 0; step < step_count; ++step) joins.busy_until.push_back(step);
  std::vector<Pending> pending;  // the nodes of the network lane that no step waits for yet
  const auto end_first_pending = [&](size_t count, int busy_until) {
    for (size_t i = 0; i < count; ++i) {
      joins.busy_until[static_cast<size_t>(pending[i].step)] = busy_until;
    }
  };
  for (int step = 0; step < step_count; ++step) {
    const Node& node = program.nodes()[static_cast<size_t>(nodes[static_cast<size_t>(step)])];
    if (node.operation->lane() == Lane::network) {
      pending.push_back({step, TouchedMemory(program, node)});
      continue;
    }
    if (pending.empty()) continue;
    const TouchedMemory touched(program, node);
    const auto found = std::find_if(pending.rbegin(), pending.rend(), [&](const Pending& other) {
      return touched.conflicts_with(other.touched);
    });
    if (found == pending.rend()) continue;
    joins.awaited[static_cast<size_t>(step)] = found->step;
    // The network lane is in order, so the nodes before the found one are done too.
    const auto done_count = static_cast<size_t>(pending.rend() - found);
    end_first_pending(done_count, step - 1);
    pending.erase(pending.begin(), pending.begin() + static_cast<std::ptrdiff_t>(done_count));
  }
  end_first_pending(pending.size(), step_count - 1);
  return joins;
}

}  // namespace tessera
