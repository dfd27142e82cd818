// Schedules that were changed at random: the validator refuses a list exactly where an executor
// without any of its code fails.

#include <algorithm>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "naive_executor.h"
#include "pipeline/validate.h"
#include "sample_schedules.h"

namespace tessera {
namespace {

using testing::random_kind;
using testing::random_shape;
using testing::run_naively;

using EntryList = std::vector<ScheduleEntry>;

size_t random_index(size_t size) { return *rc::gen::inRange<size_t>(0, size); }

/// Awaits every send directly after its post, so that it may block.
void await_sends_at_once(EntryList& list) {
  EntryList blocking;
  for (const ScheduleEntry& entry : list) {
    const auto* call = std::get_if<MessageEntry>(&entry);
    if (call != nullptr && call->call == MessageCall::wait_send) continue;
    blocking.push_back(entry);
    if (call == nullptr || call->call != MessageCall::post_send) continue;
    blocking.emplace_back(MessageEntry{MessageCall::wait_send, call->message});
  }
  list = std::move(blocking);
}

/// Changes one list, or two, in one place; or all waits for sends.
void mutate(PipelineSchedule& schedule) {
  EntryList& list = schedule.ranks[random_index(schedule.ranks.size())];
  if (list.empty()) return;
  const size_t at = random_index(list.size());
  const auto place = [](EntryList& of, size_t index) {
    return of.begin() + static_cast<std::ptrdiff_t>(index);
  };
  switch (*rc::gen::inRange(0, 7)) {
    case 0:
      list.erase(place(list, at));
      break;
    case 1:
      list.insert(place(list, random_index(list.size() + 1)), ScheduleEntry(list[at]));
      break;
    case 2:
      std::swap(list[at], list[random_index(list.size())]);
      break;
    case 3:  // a neighbour: the lists that are still right are among these
      std::swap(list[at], list[(at + 1) % list.size()]);
      break;
    case 4: {
      EntryList& other = schedule.ranks[random_index(schedule.ranks.size())];
      if (!other.empty()) std::swap(list[at], other[random_index(other.size())]);
      break;
    }
    case 5: {  // to another place of the list
      const ScheduleEntry entry = list[at];
      list.erase(place(list, at));
      list.insert(place(list, random_index(list.size() + 1)), entry);
      break;
    }
    case 6:
      for (EntryList& each : schedule.ranks) await_sends_at_once(each);
      break;
  }
}

RC_GTEST_PROP(PipelineMutants, AreRefusedExactlyWhereTheyFail, ()) {
  const ScheduleKind kind = random_kind();
  const PipelineSchedule schedule = generate(kind, random_shape(kind, 4, 4));
  for (int trial = 0; trial < 30; ++trial) {
    PipelineSchedule mutant = schedule;
    const int changes = *rc::gen::inRange(1, 3);
    for (int i = 0; i < changes; ++i) mutate(mutant);
    const auto findings = validate(mutant);
    const bool runs = run_naively(mutant);
    if (findings.empty() != runs) {
      RC_FAIL(findings.empty() ? "accepted, but fails" : "refused: " + findings[0].text());
    }
  }
}

/// Changes of the actions alone, whose messages are placed anew: more of them deadlock.
RC_GTEST_PROP(PipelineMutants, OfActionsAreRefusedExactlyWhereTheyFail, ()) {
  const ScheduleKind kind = random_kind();
  const ActionLists lists = testing::lists_of(generate(kind, random_shape(kind, 4, 4)));
  for (int trial = 0; trial < 30; ++trial) {
    ActionLists mutant = lists;
    auto& list = mutant.ranks[random_index(mutant.ranks.size())];
    const int changes = *rc::gen::inRange(1, 4);
    for (int i = 0; i < changes; ++i) {
      const size_t at = random_index(list.size());
      std::swap(list[at], list[std::min(at + 1 + random_index(3), list.size() - 1)]);
    }
    const PipelineSchedule schedule = place_messages(mutant);
    const auto findings = validate(schedule);
    if (findings.empty() != run_naively(schedule)) {
      RC_FAIL(findings.empty() ? "accepted, but fails" : "refused: " + findings[0].text());
    }
  }
}

}  // namespace
}  // namespace tessera
