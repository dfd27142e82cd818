#pragma once

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include <rapidcheck.h>

#include "pipeline/generate.h"
#include "pipeline/place_messages.h"

namespace tessera::testing {

/// The actions of a rank's list, without the messages.
inline std::vector<ChunkAction> actions_of(const std::vector<ScheduleEntry>& list) {
  std::vector<ChunkAction> actions;
  for (const ScheduleEntry& entry : list) {
    if (const auto* action = std::get_if<ChunkAction>(&entry)) actions.push_back(*action);
  }
  return actions;
}

inline ActionLists lists_of(const PipelineSchedule& schedule) {
  ActionLists lists{schedule.name, schedule.micro_batches, schedule.placement, {}};
  for (const auto& list : schedule.ranks) lists.ranks.push_back(actions_of(list));
  return lists;
}

/// The same schedule with sends that block: each is awaited where it is posted, and a receive is
/// posted where it is awaited.
inline PipelineSchedule with_blocking_sends(PipelineSchedule schedule) {
  for (auto& list : schedule.ranks) {
    std::vector<ScheduleEntry> blocking;
    for (const ScheduleEntry& entry : list) {
      const auto* call = std::get_if<MessageEntry>(&entry);
      if (call == nullptr) {
        blocking.push_back(entry);
      } else if (call->call == MessageCall::post_send) {
        blocking.push_back(entry);
        blocking.emplace_back(MessageEntry{MessageCall::wait_send, call->message});
      } else if (call->call == MessageCall::wait_receive) {
        blocking.emplace_back(MessageEntry{MessageCall::post_receive, call->message});
        blocking.push_back(entry);
      }
    }
    list = std::move(blocking);
  }
  return schedule;
}

/// A shape for which the schedule exists, of at most this size.
inline PipelineShape random_shape(ScheduleKind kind, int most_ranks, int most_micro_batches) {
  const int ranks = *rc::gen::inRange(1, most_ranks + 1);
  int virtual_stages = *rc::gen::inRange(1, 5);
  int micro_batches = *rc::gen::inRange(1, most_micro_batches + 1);
  if (kind == ScheduleKind::one_forward_one_backward || kind == ScheduleKind::zero_bubble_h1) {
    virtual_stages = 1;
  }
  if (kind == ScheduleKind::zero_bubble_v || kind == ScheduleKind::dualpipe_v) virtual_stages = 2;
  if (kind == ScheduleKind::dualpipe_v) micro_batches += 2 * ranks - 1;
  if (kind == ScheduleKind::interleaved) {
    micro_batches = ranks * std::max(micro_batches / ranks, 1);
  }
  PipelineShape shape{ranks, ranks * virtual_stages, micro_batches, {}};
  const bool groups =
      kind == ScheduleKind::flexible || kind == ScheduleKind::all_forward_all_backward;
  if (groups && *rc::gen::arbitrary<bool>()) {
    shape.consecutive_micro_batches = *rc::gen::inRange(1, micro_batches + 1);
  }
  return shape;
}

inline ScheduleKind random_kind() {
  const int kinds = static_cast<int>(kWordsOf<ScheduleKind>.size());
  return static_cast<ScheduleKind>(*rc::gen::inRange(0, kinds));
}

}  // namespace tessera::testing
