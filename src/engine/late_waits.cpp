#include "engine/late_waits.h"

#include <map>
#include <set>
#include <string>
#include <tuple>

#include "engine/touched_memory.h"
#include "program/is_kept.h"

namespace tessera {

LateWaits find_late_waits(std::span<const Program* const> programs,
                          std::span<const std::vector<std::vector<int>>> nodes,
                          std::span<const OutlastingStep> outlasting) {
  // A kept value is one for all programs. Other values are those of their program.
  using Name = std::tuple<ValueKind, std::string, int, int>;  // kind, name, program, id
  const auto touched_by = [&](int program_index, size_t segment, size_t step) {
    const Program& program = *programs[static_cast<size_t>(program_index)];
    const int node = nodes[static_cast<size_t>(program_index)][segment][step];
    return TouchedMemory<Name>(program, program.nodes()[static_cast<size_t>(node)],
                               [&](Value base) -> Name {
                                 const ValueInfo& info = program.info(base);
                                 if (is_kept(info)) return {info.kind, info.name, -1, -1};
                                 return {info.kind, "", program_index, base.id};
                               });
  };
  const auto without_frames = [](TouchedMemory<Name> touched) {
    const auto of_frame = [](const Name& name) { return std::get<2>(name) >= 0; };
    std::erase_if(touched.written, of_frame);
    std::erase_if(touched.all, of_frame);
    return touched;
  };
  LateWaits waits(programs.size());
  std::vector<TouchedMemory<Name>> awaited;
  std::map<Name, std::set<size_t>> users;  // by value: the outlasting steps that use it
  for (const OutlastingStep& step : outlasting) {
    awaited.push_back(touched_by(step.program, static_cast<size_t>(step.segment_index),
                                 static_cast<size_t>(step.step)));
    for (const Name& name : awaited.back().all) users[name].insert(awaited.size() - 1);
  }
  for (int program = 0; program < std::ssize(programs); ++program) {
    const auto& segments = nodes[static_cast<size_t>(program)];
    auto& by_segment = waits[static_cast<size_t>(program)];
    for (size_t segment = 0; segment < segments.size(); ++segment) {
      auto& by_step = by_segment.emplace_back(segments[segment].size());
      for (size_t step = 0; step < by_step.size() && !awaited.empty(); ++step) {
        const TouchedMemory<Name> own = touched_by(program, segment, step);
        std::set<size_t> candidates;
        for (const Name& name : own.all) {
          const auto found = users.find(name);
          if (found != users.end()) candidates.insert(found->second.begin(), found->second.end());
        }
        for (const size_t i : candidates) {
          if (!own.conflicts_with(awaited[i])) continue;
          const bool any_frame = without_frames(own).conflicts_with(without_frames(awaited[i]));
          by_step[step].push_back({.outlasting = static_cast<int>(i), .same_frame = !any_frame});
        }
      }
    }
  }
  return waits;
}

}  // namespace tessera
