#include "plan/micro_batch_pairs.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <variant>

#include "base/error.h"
#include "engine/joins.h"
#include "engine/touched_memory.h"

namespace tessera {
namespace {

/// Returns, by step, how many steps of the first micro-batch come before that of the second one:
/// the same step, and all that must keep their order with it.
std::vector<int> needed_of_first(const Program& program, std::span<const int> nodes) {
  std::vector<TouchedMemory<KeptName>> uses;
  for (const int node : nodes) {
    uses.push_back(touched_kept_values(program, program.nodes()[static_cast<size_t>(node)]));
  }
  std::map<KeptName, int> last_use, last_change;
  for (int step = 0; step < std::ssize(uses); ++step) {
    const TouchedMemory<KeptName>& of = uses[static_cast<size_t>(step)];
    for (const KeptName& name : of.all) last_use[name] = step;
    for (const KeptName& name : of.written) last_change[name] = step;
  }
  std::vector<int> result;
  for (int step = 0; step < std::ssize(uses); ++step) {
    const TouchedMemory<KeptName>& of = uses[static_cast<size_t>(step)];
    int last = step;
    for (const KeptName& name : of.written) last = std::max(last, last_use.at(name));
    for (const KeptName& name : of.all) {
      const auto changed = last_change.find(name);
      if (changed != last_change.end()) last = std::max(last, changed->second);
    }
    result.push_back(last + 1);
  }
  return result;
}

/// Plays a pass of two micro-batches on the lanes of a rank, and lets one go on where the other
/// would wait.
class PairPlay {
 public:
  PairPlay(const Program& program, std::span<const int> nodes,
           const std::function<double(const Program&, const Node&)>& seconds)
      : joins_(find_joins(program, nodes)), needed_of_first_(needed_of_first(program, nodes)) {
    for (const int index : nodes) {
      const Node& node = program.nodes()[static_cast<size_t>(index)];
      lanes_.push_back(node.operation->lane());
      seconds_.push_back(seconds(program, node));
    }
    done_.fill(std::vector<double>(nodes.size(), 0));
  }

  std::vector<PairPart> play() {
    size_t of = 0;  // the micro-batch that goes on
    while (next_[0] < steps() || next_[1] < steps()) {
      const size_t other = 1 - of;
      if (!may_go_on(of) || (may_go_on(other) && wait_of(other) < wait_of(of))) of = other;
      take(of);
    }
    return std::move(parts_);
  }

 private:
  int steps() const { return static_cast<int>(lanes_.size()); }
  size_t next(size_t of) const { return static_cast<size_t>(next_[of]); }
  double& time(Lane lane) { return times_[static_cast<size_t>(lane)]; }
  double compute_time() const { return times_[static_cast<size_t>(Lane::compute)]; }

  bool may_go_on(size_t of) const {
    return next_[of] < steps() && (of == 0 || needed_of_first_[next(of)] <= next_[0]);
  }

  /// Returns when all is done that the next step of a micro-batch awaits.
  double available(size_t of) const {
    double result = 0;
    for (const int step : joins_.awaited[next(of)]) {
      if (step >= 0) result = std::max(result, done_[of][static_cast<size_t>(step)]);
    }
    return result;
  }

  /// Returns how long the compute lane would wait for the next step of a micro-batch.
  double wait_of(size_t of) const {
    if (lanes_[next(of)] != Lane::compute) return 0;
    return std::max(0.0, available(of) - compute_time());
  }

  void take(size_t of) {
    const Lane lane = lanes_[next(of)];
    // A step of another lane begins after all of the compute lane's before it.
    const double begin = std::max({time(lane), compute_time(), available(of)});
    done_[of][next(of)] = time(lane) = begin + seconds_[next(of)];
    const bool is_of_second = of == 1;
    if (parts_.empty() || parts_.back().is_of_second != is_of_second) {
      parts_.push_back({is_of_second, {.begin = next_[of]}});
    }
    parts_.back().steps.end = ++next_[of];
  }

  Joins joins_;
  std::vector<int> needed_of_first_;
  std::vector<Lane> lanes_;
  std::vector<double> seconds_;
  std::array<std::vector<double>, 2> done_;  // by micro-batch and step
  std::array<int, 2> next_{};                // by micro-batch: the step that comes next
  std::array<double, kLanes> times_{};
  std::vector<PairPart> parts_;
};

}  // namespace

bool may_pair(const Program& program) {
  const auto uses_in = [&](Segment segment) {
    TouchedMemory<KeptName> all;
    for (const int node : segment_nodes(program, segment)) {
      const TouchedMemory<KeptName> uses =
          touched_kept_values(program, program.nodes()[static_cast<size_t>(node)]);
      all.all.insert(uses.all.begin(), uses.all.end());
      all.written.insert(uses.written.begin(), uses.written.end());
    }
    return all;
  };
  return !uses_in(Segment::forward).conflicts_with(uses_in(Segment::backward));
}

std::optional<std::vector<PairPart>> pair_parts(
    const Program& program, Segment segment,
    const std::function<double(const Program& program, const Node& node)>& seconds) {
  std::vector<PairPart> parts = PairPlay(program, segment_nodes(program, segment), seconds).play();
  if (parts.size() <= 2) return {};
  // The last parts end with the segment, however many steps it has.
  for (const bool is_of_second : {false, true}) {
    const auto last = std::find_if(parts.rbegin(), parts.rend(), [&](const PairPart& part) {
      return part.is_of_second == is_of_second;
    });
    last->steps.end = StepRange().end;
  }
  return parts;
}

PipelineSchedule in_pairs(PipelineSchedule schedule) {
  TESSERA_CHECK(schedule.placement.chunks() == 1, "pairs of micro-batches in a model of {} chunks",
                schedule.placement.chunks());
  std::vector<ScheduleEntry>& list = schedule.ranks.front();
  list.clear();
  for (int first = 0; first < schedule.micro_batches; first += 2) {
    const int end = std::min(first + 2, schedule.micro_batches);
    for (const ActionKind kind : {ActionKind::forward, ActionKind::backward}) {
      for (int micro_batch = first; micro_batch < end; ++micro_batch) {
        list.emplace_back(ChunkAction{.kind = kind, .micro_batch = micro_batch});
      }
    }
  }
  return schedule;
}

void take_turns(StageList& list, const PairParts& parts) {
  StageAction* before = nullptr;
  for (StageEntry& entry : list.entries) {
    auto* const action = std::get_if<StageAction>(&entry);
    TESSERA_CHECK(action != nullptr, "micro-batches with messages take turns");
    StageAction* const first = std::exchange(before, action);
    if (first == nullptr || first->run.segment != action->run.segment) continue;
    before = nullptr;  // a micro-batch is in one pair
    const auto found = parts.find(action->run.segment);
    if (found == parts.end()) continue;
    for (const PairPart& part : found->second) {
      // The entry of the first micro-batch has the parts before those of the second one begin.
      const bool is_head = !part.is_of_second && action->parts.empty();
      Action run = part.is_of_second ? action->run : first->run;
      run.steps = part.steps;
      (is_head ? first : action)->parts.push_back(run);
    }
  }
}

}  // namespace tessera
