// The parts of validate() that look at actions: each runs once, and after what it needs on its own
// rank.

#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "pipeline/checks.h"

namespace tessera {
namespace {

/// Calls visit(action, rank, entry) for each action of the lists.
template <typename Visitor>
void for_each_action(const PipelineSchedule& schedule, const Visitor& visit) {
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (size_t entry = 0; entry < schedule.ranks[rank].size(); ++entry) {
      const auto* action = std::get_if<ChunkAction>(&schedule.ranks[rank][entry]);
      if (action != nullptr) visit(*action, static_cast<int>(rank), static_cast<int>(entry));
    }
  }
}

/// Returns what does not exist of what an action names, in words; empty if all does.
std::string unknown_part(const PipelineSchedule& schedule, const ChunkAction& action) {
  if (!schedule.placement.has(action.chunk)) {
    return fmt::format("{}: there are only the chunks 0 to {}", words_for(action),
                       schedule.placement.chunks() - 1);
  }
  if (action.micro_batch < 0 || action.micro_batch >= schedule.micro_batches) {
    return fmt::format("{}: there are only the micro-batches 0 to {}", words_for(action),
                       schedule.micro_batches - 1);
  }
  return "";
}

/// The findings about one chunk and one micro-batch, of which these actions run.
void check_passes(const PipelineSchedule& schedule, const std::set<ChunkAction>& present, int chunk,
                  int micro_batch, std::vector<ScheduleFinding>& findings) {
  const int rank = schedule.placement.rank(chunk);
  const auto runs = [&](ActionKind kind) { return present.contains({kind, chunk, micro_batch}); };
  const auto require = [&](ActionKind kind, const char* alternative) {
    if (runs(kind)) return;
    findings.push_back(
        {.kind = FindingKind::missing,
         .rank = rank,
         .reason = fmt::format("found no {}{}, expected it once",
                               words_for(ChunkAction{kind, chunk, micro_batch}), alternative)});
  };
  require(ActionKind::forward, "");
  const bool input = runs(ActionKind::input_gradients);
  const bool weight = runs(ActionKind::weight_gradients);
  if (runs(ActionKind::backward)) {
    if (!input && !weight) return;
    findings.push_back(
        {.kind = FindingKind::mixed_backward,
         .rank = rank,
         .reason = fmt::format(
             "found the backward of chunk {}, micro-batch {}, and its {} as well, expected the one "
             "or the other: the backward computes both gradients",
             chunk, micro_batch, input ? "input gradients" : "weight gradients")});
  } else if (!input && !weight) {
    require(ActionKind::backward, ", whole or in halves");
  } else {
    require(ActionKind::input_gradients, "");
    require(ActionKind::weight_gradients, "");
  }
}

/// Returns what must run on the same rank before an action: alternatives, of which one is enough.
std::vector<std::vector<ChunkAction>> local_needs(const ChunkPlacement& placement,
                                                  const ChunkAction& action) {
  const int chunk = action.chunk;
  const int micro_batch = action.micro_batch;
  const auto here = [&](int neighbour) {
    return placement.has(neighbour) && placement.rank(neighbour) == placement.rank(chunk);
  };
  std::vector<std::vector<ChunkAction>> needs;
  switch (action.kind) {
    case ActionKind::forward:
      if (here(chunk - 1)) needs.push_back({{ActionKind::forward, chunk - 1, micro_batch}});
      break;
    case ActionKind::backward:
    case ActionKind::input_gradients:
      needs.push_back({{ActionKind::forward, chunk, micro_batch}});
      if (here(chunk + 1)) {
        needs.push_back({{ActionKind::backward, chunk + 1, micro_batch},
                         {ActionKind::input_gradients, chunk + 1, micro_batch}});
      }
      break;
    case ActionKind::weight_gradients:
      needs.push_back({{ActionKind::input_gradients, chunk, micro_batch}});
      break;
  }
  return needs;
}

}  // namespace

void check_actions(const PipelineSchedule& schedule, std::vector<ScheduleFinding>& findings) {
  std::map<ChunkAction, int> first_entry;
  std::set<ChunkAction> present;
  for_each_action(schedule, [&](const ChunkAction& action, int rank, int entry) {
    const auto add = [&](FindingKind kind, std::string reason) {
      findings.push_back({.kind = kind, .rank = rank, .entry = entry, .reason = std::move(reason)});
    };
    if (std::string reason = unknown_part(schedule, action); !reason.empty()) {
      add(FindingKind::unknown, std::move(reason));
      return;
    }
    if (schedule.placement.rank(action.chunk) != rank) {
      add(FindingKind::wrong_rank, fmt::format("{}: this chunk is on rank {}", words_for(action),
                                               schedule.placement.rank(action.chunk)));
      return;
    }
    const auto [first, inserted] = first_entry.insert({action, entry});
    present.insert(action);
    if (inserted) return;
    add(FindingKind::repeated,
        fmt::format("{} is entry {} already, expected it once", words_for(action), first->second));
  });
  for (int chunk = 0; chunk < schedule.placement.chunks(); ++chunk) {
    for (int micro_batch = 0; micro_batch < schedule.micro_batches; ++micro_batch) {
      check_passes(schedule, present, chunk, micro_batch, findings);
    }
  }
}

void check_order(const PipelineSchedule& schedule, std::vector<ScheduleFinding>& findings) {
  std::set<ChunkAction> done;
  for_each_action(schedule, [&](const ChunkAction& action, int rank, int entry) {
    for (const auto& alternatives : local_needs(schedule.placement, action)) {
      bool found = false;
      for (const ChunkAction& needed : alternatives) found = found || done.contains(needed);
      if (found) continue;
      findings.push_back(
          {.kind = FindingKind::order,
           .rank = rank,
           .entry = entry,
           .reason = fmt::format("{} comes before the {}, which it needs", words_for(action),
                                 words_for(alternatives.front()))});
    }
    done.insert(action);
  });
}

}  // namespace tessera
