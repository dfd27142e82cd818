#include "program/kept_uses.h"

#include <algorithm>

#include "program/is_kept.h"

namespace tessera {
namespace {

bool overlap(const std::set<KeptName>& a, const std::set<KeptName>& b) {
  return std::ranges::any_of(a, [&](const KeptName& name) { return b.contains(name); });
}

}  // namespace

bool KeptUses::conflict_with(const KeptUses& other) const {
  return overlap(changed, other.used) || overlap(used, other.changed);
}

KeptUses kept_uses(const Program& program, const Node& node) {
  KeptUses result;
  const auto note = [&](Value value, bool is_changed) {
    const ValueInfo& info = program.info(program.base(value));
    if (!is_kept(info)) return;
    result.used.emplace(info.kind, info.name);
    if (is_changed) result.changed.emplace(info.kind, info.name);
  };
  for (const Value input : node.inputs) note(input, false);
  for (const Value output : node.outputs) note(output, true);
  for (const int input : node.operation->updated_inputs()) {
    note(node.inputs[static_cast<size_t>(input)], true);
  }
  return result;
}

}  // namespace tessera
