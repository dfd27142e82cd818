#include "plan/explain_memory.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "ops/collective/unit_pieces.h"
#include "plan/explain_held.h"
#include "program/is_kept.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

/// Adds the values that are kept between runs. The programs share those of one kind and name.
void add_kept(const StepPlan& plan, RankMemory& memory) {
  const std::set<std::string> optimizer = optimizer_states(plan);
  std::set<std::pair<ValueKind, std::string>> known;
  int64_t kept = 0;
  for (const Program* program : plan.programs.list()) {
    for (const ValueInfo& value : program->values()) {
      if (!is_kept(value) || value.view || !known.emplace(value.kind, value.name).second) continue;
      const int64_t bytes = aligned_bytes(value.spec.bytes());
      kept += bytes;
      if (value.kind == ValueKind::parameter) {
        memory.weights += bytes;
      } else if (value.kind == ValueKind::main_gradient || value.name.starts_with(kErrorPrefix)) {
        memory.gradients += bytes;
      } else if (value.name.starts_with(kSecondCopyPrefix)) {
        memory.second_copies += bytes;
      } else if (optimizer.contains(value.name)) {
        memory.optimizer += bytes;
      } else {
        memory.buffers += bytes;
      }
    }
  }
  TESSERA_CHECK(kept == plan.memory.kept_bytes, "{} bytes are kept by kind; expected {}", kept,
                plan.memory.kept_bytes);
}

/// Returns the number of bytes of the arena in which a value waits for a later segment at any time.
int64_t waiting_bytes(const StepPlan& plan) {
  std::vector<std::pair<int64_t, int64_t>> ranges;  // from the first byte to the last one's end
  const std::vector<const Program*> list = plan.programs.list();
  for (size_t i = 0; i < list.size(); ++i) {
    const ProgramMemory& memory = plan.memory.programs[i];
    for (const std::vector<int64_t>& offsets : memory.values) {
      for (size_t value = 0; value < offsets.size(); ++value) {
        if (!memory.saved[value] || offsets[value] < 0) continue;
        const int64_t bytes = aligned_bytes(list[i]->values()[value].spec.bytes());
        ranges.emplace_back(offsets[value], offsets[value] + bytes);
      }
    }
  }
  std::ranges::sort(ranges);
  int64_t bytes = 0, counted_to = 0;
  for (const auto& [begin, end] : ranges) {
    bytes += std::max<int64_t>(0, end - std::max(begin, counted_to));
    counted_to = std::max(counted_to, end);
  }
  return bytes;
}

std::array<std::pair<std::string_view, int64_t>, 6> by_kind(const RankMemory& memory) {
  return {{{"weights", memory.weights},
           {"second copies", memory.second_copies},
           {"gradients", memory.gradients},
           {"optimizer", memory.optimizer},
           {"activations", memory.activations},
           {"buffers", memory.buffers}}};
}

}  // namespace

RankMemory rank_memory(const StepPlan& plan) {
  RankMemory memory;
  add_kept(plan, memory);
  memory.activations = waiting_bytes(plan);
  memory.buffers += plan.memory.arena_bytes - plan.memory.kept_bytes - memory.activations;
  return memory;
}

std::string memory_table(const StepPlan& plan) {
  const RankMemory memory = rank_memory(plan);
  Table table({"memory for", "value", "exactly"});
  const auto row = [&](std::string_view name, int64_t bytes) {
    table.add({std::string(name), format_bytes(bytes), fmt::format("{}", bytes)});
  };
  for (const auto& [name, bytes] : by_kind(memory)) row(name, bytes);
  row("all that is reserved", memory.total());
  return table.text();
}

nlohmann::ordered_json memory_json(const StepPlan& plan) {
  nlohmann::ordered_json json;
  for (const auto& [name, bytes] : by_kind(rank_memory(plan))) {
    std::string key(name);
    std::ranges::replace(key, ' ', '_');
    json[key] = bytes;
  }
  return json;
}

}  // namespace tessera
