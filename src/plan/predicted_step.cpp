#include "plan/predicted_step.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/words.h"
#include "engine/frames_in_flight.h"
#include "engine/memory_plan.h"

namespace tessera {
namespace {

/// Plays a list of actions on a clock for each lane.
class LaneClocks {
 public:
  LaneClocks(std::vector<const Program*> programs, std::span<const ListEntry> list,
             const Target& target, const SecondsOfNode& seconds)
      : programs_(std::move(programs)),
        plan_(plan_lanes(programs_, list, target)),
        at_work_(plan_.outlasting, plan_.late_waits),
        seconds_(seconds) {}

  /// Predicts the second of three steps: what is at work when it ends may go on in the third.
  PredictedStep predict(std::span<const ListEntry> step) {
    run(step);
    calls_.clear();
    computed_.clear();
    const double begin = compute();
    run(step);
    PredictedStep result{.seconds = compute() - begin, .calls = {}};
    const size_t calls = calls_.size();
    run(step);
    for (size_t i = 0; i < calls; ++i) {
      note_beside(calls_[i]);
      result.calls.push_back(std::move(calls_[i].predicted));
    }
    return result;
  }

 private:
  struct Call {
    PredictedCall predicted;
    Lane lane;
    double begin = 0;
    double end = 0;
  };
  /// A node of the compute lane.
  struct Computed {
    double begin = 0;
    double end = 0;
    const Node* node = nullptr;
  };
  /// A step of a segment in a frame: program, frame, segment and step.
  using Key = std::tuple<int, int, int, int>;

  double& time(Lane lane) { return times_[static_cast<size_t>(lane)]; }
  double& compute() { return time(Lane::compute); }

  void run(std::span<const ListEntry> list) {
    for (const ListEntry& entry : list) {
      if (const auto* const action = std::get_if<Action>(&entry)) run(*action);
    }
  }

  void run(const Action& action) {
    const ProgramMemory& memory = plan_.programs[static_cast<size_t>(action.program)];
    const Program& program = *programs_[static_cast<size_t>(action.program)];
    const int frame = memory.frames.at(action.micro_batch);
    const auto segment =
        static_cast<int>(std::ranges::find(memory.order, action.segment) - memory.order.begin());
    const std::vector<int>& nodes = memory.nodes[static_cast<size_t>(segment)];
    const Joins& joins = memory.joins[static_cast<size_t>(segment)];
    if (segment == 0 && action.steps.begin == 0) {
      await(at_work_.of_frame(action.program, frame));
    }
    const int end = std::min(action.steps.end, static_cast<int>(nodes.size()));
    for (int step = action.steps.begin; step < end; ++step) {
      const Node& node = program.nodes()[static_cast<size_t>(nodes[static_cast<size_t>(step)])];
      const Lane lane = node.operation->lane();
      std::vector<Key> awaited;
      for (const int other : joins.awaited[static_cast<size_t>(step)]) {
        if (other >= 0) awaited.emplace_back(action.program, frame, segment, other);
      }
      const std::vector<StepAtWork> late =
          at_work_.awaited_by(action.program, frame, segment, step, lane);
      for (const StepAtWork other : late) awaited.push_back(key_of(other));
      const double seconds = seconds_(program, node);
      if (lane == Lane::compute) {
        await(awaited);
        for (const StepAtWork other : late) at_work_.end(other);
        at_work_.end_known_at(action.program, frame, segment, step);
        computed_.push_back({.begin = compute(), .end = compute() + seconds, .node = &node});
        compute() += seconds;
      } else {
        double begin = std::max(time(lane), compute());
        for (const Key& other : awaited) begin = std::max(begin, done(other));
        time(lane) = begin + seconds;
        done_[{action.program, frame, segment, step}] = time(lane);
        calls_.push_back({.predicted = {.program = &program,
                                        .node = &node,
                                        .seconds = seconds,
                                        .exposed = 0,
                                        .beside = {}},
                          .lane = lane,
                          .begin = begin,
                          .end = time(lane)});
        at_work_.begin(action.program, frame, segment, step);
      }
    }
    if (end < std::ssize(nodes)) return;
    std::vector<Key> awaited;
    for (const int other : joins.at_end) {
      if (other >= 0) awaited.emplace_back(action.program, frame, segment, other);
    }
    await(awaited);
  }

  Key key_of(StepAtWork which) const {
    const OutlastingStep& step = at_work_.step(which);
    return {step.program, which.frame, step.segment_index, step.step};
  }

  double done(const Key& key) const {
    const auto found = done_.find(key);
    return found == done_.end() ? 0 : found->second;
  }

  void await(const std::vector<StepAtWork>& steps) {
    std::vector<Key> keys;
    for (const StepAtWork step : steps) keys.push_back(key_of(step));
    await(keys);
    for (const StepAtWork step : steps) at_work_.end(step);
  }

  /// Lets the compute lane wait. The wait counts for the calls that the lane of the last one makes
  /// meanwhile.
  void await(const std::vector<Key>& keys) {
    const auto last = std::ranges::max_element(keys, {}, [&](const Key& key) { return done(key); });
    if (last == keys.end() || done(*last) <= compute()) return;
    const double end = done(*last);
    const Lane lane = lane_of(*last);
    for (auto call = calls_.rbegin(); call != calls_.rend(); ++call) {
      if (call->lane != lane) continue;
      if (call->end <= compute()) break;
      call->predicted.exposed +=
          std::max(0.0, std::min(call->end, end) - std::max(call->begin, compute()));
    }
    compute() = end;
  }

  Lane lane_of(const Key& key) const {
    const auto [program, frame, segment, step] = key;
    const std::vector<int>& nodes =
        plan_.programs[static_cast<size_t>(program)].nodes[static_cast<size_t>(segment)];
    const int node = nodes[static_cast<size_t>(step)];
    return programs_[static_cast<size_t>(program)]
        ->nodes()[static_cast<size_t>(node)]
        .operation->lane();
  }

  /// Notes what the compute lane has computed during a call.
  void note_beside(Call& call) const {
    auto computed =
        std::ranges::lower_bound(computed_, call.begin, std::ranges::less_equal(), &Computed::end);
    for (; computed != computed_.end() && computed->begin < call.end; ++computed) {
      const double both = std::min(computed->end, call.end) - std::max(computed->begin, call.begin);
      if (both <= 0) continue;
      const std::string name =
          fmt::format("{} of {}", computed->node->operation->name(), word(computed->node->block));
      call.predicted.beside[name] += both;
    }
  }

  std::vector<const Program*> programs_;
  MemoryPlan plan_;  // without memory
  StepsAtWork at_work_;
  const SecondsOfNode& seconds_;
  std::array<double, kLanes> times_{};
  std::map<Key, double> done_;
  std::vector<Call> calls_;         // from the second step on
  std::vector<Computed> computed_;  // likewise
};

}  // namespace

PredictedStep predict_step(const StepPrograms& programs, int micro_batches, const Target& target,
                           const SecondsOfNode& seconds) {
  const StageList list = programs.step_list(0, micro_batches);
  std::vector<ListEntry> step{Action{.program = programs.start_number()}};
  std::ranges::move(list.for_plan(), std::back_inserter(step));
  step.emplace_back(
      Action{.program = programs.update_number(), .steps = {.begin = list.update_steps}});
  // The list for the plan has all programs, whether the step runs them or not.
  std::vector<ListEntry> all = programs.actions();
  all.insert(all.end(), step.begin(), step.end());
  return LaneClocks(programs.list(), all, target, seconds).predict(step);
}

}  // namespace tessera
