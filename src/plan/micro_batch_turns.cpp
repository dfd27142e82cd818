#include "plan/micro_batch_turns.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <variant>

#include "base/error.h"
#include "engine/joins.h"
#include "engine/touched_memory.h"

namespace tessera {
namespace {

using KeptValues = TouchedMemory<KeptName>;

/// A pass of a program, and what is known of its steps.
struct Pass {
  Pass(const Program& program, Segment segment, const SecondsOfNode& seconds_of)
      : nodes(segment_nodes(program, segment)), joins(find_joins(program, nodes)) {
    for (const int index : nodes) {
      const Node& node = program.nodes()[static_cast<size_t>(index)];
      lanes.push_back(node.operation->lane());
      seconds.push_back(seconds_of(program, node));
      kept.push_back(touched_kept_values(program, node));
    }
  }

  /// Returns the kept values that any step touches.
  KeptValues all_kept() const {
    KeptValues all;
    for (const KeptValues& of_step : kept) all.add(of_step);
    return all;
  }

  std::vector<int> nodes;
  Joins joins;
  // By step.
  std::vector<Lane> lanes;
  std::vector<double> seconds;
  std::vector<KeptValues> kept;
};

/// Returns, by step of the second pass, how many steps of the first one come before it: all that it
/// must keep its order with. If both are the same pass, the same step comes before it: so the last
/// use of a value by the second micro-batch is the last of both, as begin_sums() takes it to be.
std::vector<int> needed_of_first(const Pass& first, const Pass& second) {
  std::map<KeptName, int> last_use, last_write;  // the numbers of steps up to them
  for (size_t step = 0; step < first.kept.size(); ++step) {
    for (const KeptName& name : first.kept[step].all) last_use[name] = static_cast<int>(step) + 1;
    for (const KeptName& name : first.kept[step].written) {
      last_write[name] = static_cast<int>(step) + 1;
    }
  }
  const auto last_of = [](const std::map<KeptName, int>& last, const KeptName& name) {
    const auto found = last.find(name);
    return found == last.end() ? 0 : found->second;
  };
  std::vector<int> result;
  const bool is_same = &first == &second;
  for (const KeptValues& kept : second.kept) {
    int needed = is_same ? static_cast<int>(result.size()) + 1 : 0;
    for (const KeptName& name : kept.written) needed = std::max(needed, last_of(last_use, name));
    for (const KeptName& name : kept.all) needed = std::max(needed, last_of(last_write, name));
    result.push_back(needed);
  }
  return result;
}

/// Plays two passes on the lanes of a rank, and lets one go on where the other would wait.
class TurnsPlay {
 public:
  TurnsPlay(const Pass& first, const Pass& second)
      : passes_{&first, &second}, needed_of_first_(needed_of_first(first, second)) {
    for (size_t i = 0; i < 2; ++i) done_[i].resize(passes_[i]->nodes.size());
  }

  /// Returns the parts; none if each pass runs as a whole.
  std::vector<TurnPart> play() {
    size_t now = 0;  // the pass that goes on
    while (!is_done(0) || !is_done(1)) {
      const size_t other = 1 - now;
      if (!may_go_on(now) || (may_go_on(other) && wait_of(other) < wait_of(now))) now = other;
      take(now);
    }
    if (parts_.size() <= 2) return {};
    // The last parts end with the pass, however many steps it has.
    for (const bool is_of_second : {false, true}) {
      const auto is_of = [&](const TurnPart& part) { return part.is_of_second == is_of_second; };
      std::find_if(parts_.rbegin(), parts_.rend(), is_of)->steps.end = StepRange().end;
    }
    return std::move(parts_);
  }

 private:
  size_t next(size_t pass) const { return static_cast<size_t>(next_[pass]); }
  bool is_done(size_t pass) const { return next(pass) == passes_[pass]->nodes.size(); }
  double& time(Lane lane) { return times_[static_cast<size_t>(lane)]; }
  double compute_time() const { return times_[static_cast<size_t>(Lane::compute)]; }

  bool may_go_on(size_t pass) const {
    return !is_done(pass) && (pass == 0 || needed_of_first_[next(pass)] <= next_[0]);
  }

  /// Returns when all is done that the next step of a pass awaits.
  double available(size_t pass) const {
    double result = 0;
    for (const int step : passes_[pass]->joins.awaited[next(pass)]) {
      if (step >= 0) result = std::max(result, done_[pass][static_cast<size_t>(step)]);
    }
    return result;
  }

  /// Returns how long the compute lane would wait for the next step of a pass.
  double wait_of(size_t pass) const {
    if (passes_[pass]->lanes[next(pass)] != Lane::compute) return 0;
    return std::max(0.0, available(pass) - compute_time());
  }

  void take(size_t pass) {
    const Lane lane = passes_[pass]->lanes[next(pass)];
    // A step of another lane begins after all of the compute lane's before it.
    const double begin = std::max({time(lane), compute_time(), available(pass)});
    done_[pass][next(pass)] = time(lane) = begin + passes_[pass]->seconds[next(pass)];
    const bool is_of_second = pass == 1;
    if (parts_.empty() || parts_.back().is_of_second != is_of_second) {
      parts_.push_back({is_of_second, {.begin = next_[pass]}});
    }
    parts_.back().steps.end = ++next_[pass];
  }

  std::array<const Pass*, 2> passes_;
  std::vector<int> needed_of_first_;
  std::array<std::vector<double>, 2> done_;  // by pass and step
  std::array<int, 2> next_{};                // by pass: the step that comes next
  std::array<double, kLanes> times_{};
  std::vector<TurnPart> parts_;
};

}  // namespace

MicroBatchTurns find_turns(const Program& program, bool in_pairs, const SecondsOfNode& seconds) {
  const Pass forward(program, Segment::forward, seconds);
  const Pass backward(program, Segment::backward, seconds);
  MicroBatchTurns turns{.in_pairs = in_pairs, .passes = {}};
  const auto add = [&](Segment first, Segment second) {
    const auto pass = [&](Segment of) -> const Pass& {
      return of == Segment::forward ? forward : backward;
    };
    std::vector<TurnPart> parts = TurnsPlay(pass(first), pass(second)).play();
    if (!parts.empty()) turns.passes.push_back({first, second, std::move(parts)});
  };
  if (!in_pairs) {
    add(Segment::backward, Segment::forward);
  } else if (!forward.all_kept().conflicts_with(backward.all_kept())) {
    add(Segment::forward, Segment::forward);
    add(Segment::backward, Segment::backward);
  }
  return turns;
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

void take_turns(StageList& list, const MicroBatchTurns& turns) {
  StageAction* before = nullptr;  // if it takes no turns yet
  for (StageEntry& entry : list.entries) {
    auto* const action = std::get_if<StageAction>(&entry);
    TESSERA_CHECK(action != nullptr, "only passes take turns, and the list has other entries");
    if (!turns.in_pairs) action->run.micro_batch = action->action.micro_batch % 2;
    StageAction* const first = std::exchange(before, action);
    if (first == nullptr || first->action.micro_batch == action->action.micro_batch) continue;
    const auto passes = std::ranges::find_if(turns.passes, [&](const PassesInTurns& known) {
      return known.first == first->run.segment && known.second == action->run.segment;
    });
    if (passes == turns.passes.end()) continue;
    before = nullptr;
    for (const TurnPart& part : passes->parts) {
      // The entry of the first pass has the parts before those of the second one begin.
      const bool is_head = !part.is_of_second && action->parts.empty();
      Action run = part.is_of_second ? action->run : first->run;
      run.steps = part.steps;
      (is_head ? first : action)->parts.push_back(run);
    }
  }
}

}  // namespace tessera
