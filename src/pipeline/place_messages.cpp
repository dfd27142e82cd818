#include "pipeline/place_messages.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace tessera {
namespace {

/// The position of an action in the lists.
struct ListPosition {
  size_t rank = 0;
  size_t index = 0;
};

/// Returns what an action needs or sends, if it is on the rank of its chunk.
std::optional<BoundaryMessage> input_on(const ActionLists& lists, ListPosition at) {
  const ChunkAction& action = lists.ranks[at.rank][at.index];
  const auto message = lists.placement.input_of(action);
  const bool here = message && lists.placement.rank(action.chunk) == static_cast<int>(at.rank);
  return here ? message : std::nullopt;
}

std::optional<BoundaryMessage> output_on(const ActionLists& lists, ListPosition at) {
  const ChunkAction& action = lists.ranks[at.rank][at.index];
  const auto message = lists.placement.output_of(action);
  const bool here = message && lists.placement.rank(action.chunk) == static_cast<int>(at.rank);
  return here ? message : std::nullopt;
}

/// What is known of all ranks when an action begins, from the lists and the messages alone: a
/// vector clock.
class BegunActions {
 public:
  explicit BegunActions(const ActionLists& lists) : lists_(lists), begun_(lists.ranks.size()) {
    for (size_t rank = 0; rank < lists.ranks.size(); ++rank) {
      for (size_t index = 0; index < lists.ranks[rank].size(); ++index) {
        if (const auto message = output_on(lists, {rank, index})) {
          sender_.insert({*message, {rank, index}});
        }
        if (const auto message = input_on(lists, {rank, index})) {
          receiver_.insert({*message, {rank, index}});
        }
      }
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < lists.ranks.size(); ++rank) {
        while (follow(rank)) moved = true;
      }
    }
  }

  /// Returns the index of the first action after `sent` on its rank that begins certainly after the
  /// action that receives the message. Returns the number of the rank's actions if there is none.
  size_t first_after_receive(const BoundaryMessage& message, ListPosition sent) const {
    const size_t none = lists_.ranks[sent.rank].size();
    const auto receiver = receiver_.find(message);
    if (receiver == receiver_.end()) return none;
    const ListPosition& at = receiver->second;
    const auto& known = begun_[sent.rank];
    const auto later = std::find_if(
        known.begin() + static_cast<std::ptrdiff_t>(std::min(sent.index + 1, known.size())),
        known.end(), [&](const std::vector<size_t>& counts) { return counts[at.rank] > at.index; });
    return later == known.end() ? none : static_cast<size_t>(later - known.begin());
  }

 private:
  /// Adds what is known at the next action of a rank. Returns whether the rank could go on.
  bool follow(size_t rank) {
    auto& known = begun_[rank];
    const size_t index = known.size();
    if (index == lists_.ranks[rank].size()) return false;
    std::vector<size_t> counts =
        index > 0 ? known.back() : std::vector<size_t>(lists_.ranks.size(), 0);
    counts[rank] = index + 1;
    const auto message = input_on(lists_, {rank, index});
    const auto sender = message ? sender_.find(*message) : sender_.end();
    if (sender != sender_.end()) {
      const auto& there = begun_[sender->second.rank];
      if (sender->second.index >= there.size()) return false;
      for (size_t other = 0; other < counts.size(); ++other) {
        counts[other] = std::max(counts[other], there[sender->second.index][other]);
      }
    }
    known.push_back(std::move(counts));
    return true;
  }

  const ActionLists& lists_;
  std::map<BoundaryMessage, ListPosition> sender_, receiver_;
  /// begun_[rank][index][other]: the number of actions of `other` that have begun for certain when
  /// the action begins.
  std::vector<std::vector<std::vector<size_t>>> begun_;
};

/// Returns a rank's complete list. `ends[index]` are the sends to await before that action, or at
/// the end of the list.
std::vector<ScheduleEntry> list_of(const ActionLists& lists, size_t rank,
                                   const std::vector<std::vector<BoundaryMessage>>& ends) {
  std::vector<ScheduleEntry> entries;
  const auto add = [&](MessageCall call, const std::optional<BoundaryMessage>& message) {
    if (message) entries.emplace_back(MessageEntry{call, *message});
  };
  const std::vector<ChunkAction>& actions = lists.ranks[rank];
  if (!actions.empty()) add(MessageCall::post_receive, input_on(lists, {rank, 0}));
  for (size_t index = 0; index < actions.size(); ++index) {
    if (index + 1 < actions.size()) {
      add(MessageCall::post_receive, input_on(lists, {rank, index + 1}));
    }
    add(MessageCall::wait_receive, input_on(lists, {rank, index}));
    for (const BoundaryMessage& message : ends[index]) add(MessageCall::wait_send, message);
    entries.emplace_back(actions[index]);
    add(MessageCall::post_send, output_on(lists, {rank, index}));
  }
  for (const BoundaryMessage& message : ends.back()) add(MessageCall::wait_send, message);
  return entries;
}

}  // namespace

PipelineSchedule place_messages(ActionLists lists) {
  const BegunActions begun(lists);
  PipelineSchedule schedule{
      .name = lists.name, .micro_batches = lists.micro_batches, .placement = lists.placement};
  for (size_t rank = 0; rank < lists.ranks.size(); ++rank) {
    std::vector<std::vector<BoundaryMessage>> ends(lists.ranks[rank].size() + 1);
    for (size_t index = 0; index < lists.ranks[rank].size(); ++index) {
      const auto message = output_on(lists, {rank, index});
      if (message) ends[begun.first_after_receive(*message, {rank, index})].push_back(*message);
    }
    schedule.ranks.push_back(list_of(lists, rank, ends));
  }
  return schedule;
}

PipelineSchedule in_halves(PipelineSchedule schedule) {
  const auto actions_of = [](const std::vector<ScheduleEntry>& list) {
    std::vector<ChunkAction> actions;
    for (const ScheduleEntry& entry : list) {
      if (const auto* const action = std::get_if<ChunkAction>(&entry)) actions.push_back(*action);
    }
    return actions;
  };
  std::set<int> split;  // chunks
  for (const auto& list : schedule.ranks) {
    for (const ChunkAction& action : actions_of(list)) {
      if (action.kind == ActionKind::input_gradients) split.insert(action.chunk);
    }
  }
  bool is_changed = false;
  ActionLists lists{.name = schedule.name,
                    .micro_batches = schedule.micro_batches,
                    .placement = schedule.placement,
                    .ranks = {}};
  for (const auto& list : schedule.ranks) {
    std::vector<ChunkAction>& actions = lists.ranks.emplace_back();
    for (const ChunkAction& action : actions_of(list)) {
      if (action.kind != ActionKind::backward || !split.contains(action.chunk)) {
        actions.push_back(action);
        continue;
      }
      is_changed = true;
      for (const ActionKind half : {ActionKind::input_gradients, ActionKind::weight_gradients}) {
        actions.push_back({half, action.chunk, action.micro_batch});
      }
    }
  }
  return is_changed ? place_messages(std::move(lists)) : std::move(schedule);
}

}  // namespace tessera
