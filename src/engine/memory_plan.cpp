#include "engine/memory_plan.h"

#include <utility>

#include "engine/lifetimes.h"

namespace tessera {

MemoryPlan plan_memory(const Program& program, const Target& target, MemoryLayout start) {
  const Lifetimes lifetimes(program);
  std::vector<int64_t> offsets(program.values().size(), -1);
  MemoryPlan plan;
  MemoryLayout layout = std::move(start);
  layout.reset_peak();
  const int64_t before = layout.in_use();
  plan.peak_bytes = before;
  const int forward_size = program.forward_size();
  for (int i = 0; i < static_cast<int>(program.nodes().size()); ++i) {
    const Node& node = program.nodes()[static_cast<size_t>(i)];
    if (i == forward_size) plan.saved_bytes = layout.in_use() - before;
    for (const Value output : node.outputs) {
      const Value previous = lifetimes.takes_over(output);
      offsets[static_cast<size_t>(output.id)] = previous
                                                    ? offsets[static_cast<size_t>(previous.id)]
                                                    : layout.allocate(program.spec(output).bytes());
    }
    const int64_t scratch = node.operation->workspace_bytes(target, program.specs(node.inputs));
    const int64_t workspace = scratch > 0 ? layout.allocate(scratch) : -1;
    plan.in_use_at.push_back(layout.in_use());
    if (layout.in_use() > plan.peak_bytes) {
      plan.peak_bytes = layout.in_use();
      plan.peak_node = i;
    }
    if (workspace >= 0) layout.release(workspace);
    for (const Value value : lifetimes.released_after(i)) {
      layout.release(offsets[static_cast<size_t>(value.id)]);
    }
  }
  plan.left = std::move(layout);
  return plan;
}

}  // namespace tessera
