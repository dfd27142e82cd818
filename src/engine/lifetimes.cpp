#include "engine/lifetimes.h"

#include <algorithm>

namespace tessera {
namespace {

/// Whether `output` may live in the memory of `input`: it ends here, is used once, and fits.
bool may_take_over(const Program& program, const Node& node, Value input, Value output) {
  const Spec& from = program.spec(input);
  const Spec& to = program.spec(output);
  return from.dtype == to.dtype && from.bytes() == to.bytes() &&
         std::ranges::count(node.inputs, input) == 1;
}

}  // namespace

Lifetimes::Lifetimes(const Program& program)
    : released_(program.nodes().size()),
      takes_over_(program.values().size()),
      last_use_(program.values().size(), -1) {
  const std::vector<Node>& nodes = program.nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const std::vector<Value>* group : {&nodes[i].outputs, &nodes[i].inputs}) {
      for (const Value value : *group) {
        const bool computed = program.info(value).kind == ValueKind::computed;
        if (computed && !program.is_output(value)) {
          last_use_[static_cast<size_t>(value.id)] = static_cast<int>(i);
        }
      }
    }
  }
  std::vector<bool> taken(program.values().size(), false);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t output = 0; output < nodes[i].outputs.size(); ++output) {
      const int position = nodes[i].operation->in_place_input(static_cast<int>(output));
      if (position < 0) continue;
      const Value input = nodes[i].inputs[static_cast<size_t>(position)];
      if (last_use(input) == static_cast<int>(i) && !taken[static_cast<size_t>(input.id)] &&
          may_take_over(program, nodes[i], input, nodes[i].outputs[output])) {
        takes_over_[static_cast<size_t>(nodes[i].outputs[output].id)] = input;
        taken[static_cast<size_t>(input.id)] = true;
      }
    }
  }
  for (size_t id = 0; id < last_use_.size(); ++id) {
    if (last_use_[id] >= 0 && !taken[id]) {
      released_[static_cast<size_t>(last_use_[id])].push_back(Value{static_cast<int>(id)});
    }
  }
}

}  // namespace tessera
