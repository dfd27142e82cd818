#include "plan/stage_clocks.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/words.h"

namespace tessera {
namespace {

bool is_post(MessageCall call) {
  return call == MessageCall::post_send || call == MessageCall::post_receive;
}

/// Returns a stage's list with what comes before and after it in a step.
std::vector<std::variant<Action, StageMessage>> entries_of(const ListedStep& step) {
  std::vector<std::variant<Action, StageMessage>> result;
  result.emplace_back(step.programs->start_action());
  for (const StageEntry& entry : step.list.entries) {
    if (const auto* const action = std::get_if<StageAction>(&entry)) {
      result.insert(result.end(), action->runs().begin(), action->runs().end());
    } else if (const auto* const message = std::get_if<StageMessage>(&entry)) {
      result.emplace_back(*message);
    }
  }
  result.emplace_back(step.programs->update_action(step.list));
  return result;
}

/// Returns the plan of a step's lanes. Its list has all programs, whether the step runs them or
/// not.
MemoryPlan plan_of(const ListedStep& step, const Target& target) {
  const std::vector<const Program*> programs = step.programs->list();
  std::vector<ListEntry> list = step.programs->whole_step(step.list);
  std::set<int> run;
  for (const ListEntry& entry : list) {
    if (const auto* const action = std::get_if<Action>(&entry)) run.insert(action->program);
  }
  for (int program = 0; program < std::ssize(programs); ++program) {
    if (!run.contains(program)) list.emplace_back(Action{.program = program});
  }
  return plan_lanes(programs, list, target);
}

}  // namespace

StageClocks::StageClocks(const ListedStep& step, const Target& target, const StepSeconds& seconds,
                         StageMeetings& meetings)
    : step_(step),
      seconds_(seconds),
      meetings_(meetings),
      stage_(step.programs->start.mesh().stage(step.programs->start.rank())),
      programs_(step.programs->list()),
      plan_(plan_of(step, target)),
      at_work_(plan_.outlasting, plan_.late_waits),
      entries_(entries_of(step)) {
  for (const Program* const program : programs_) {
    std::vector<NodeFacts>& of_program = facts_.emplace_back();
    for (const Node& node : program->nodes()) {
      of_program.push_back({.lane = node.operation->lane(),
                            .seconds = seconds.node(*program, node),
                            .calls = meetings.calls_of(*program, node)});
    }
  }
}

bool StageClocks::advance() {
  got_further_ = false;
  while (!is_done()) {
    for (; entry_ < entries_.size(); ++entry_) {
      if (!run(entries_[entry_])) return got_further_;
      got_further_ = true;
    }
    ends_[static_cast<size_t>(pass_)] = compute();
    entry_ = 0;
    ++pass_;
  }
  return true;
}

bool StageClocks::run(const Entry& entry) {
  return std::visit([&](const auto& known) { return run(known); }, entry);
}

bool StageClocks::run(const Action& action) {
  const ProgramMemory& memory = plan_.programs[static_cast<size_t>(action.program)];
  const int frame = memory.frames.at(action.micro_batch);
  const auto segment =
      static_cast<int>(std::ranges::find(memory.order, action.segment) - memory.order.begin());
  const Joins& joins = memory.joins[static_cast<size_t>(segment)];
  const auto steps = static_cast<int>(memory.nodes[static_cast<size_t>(segment)].size());
  const int end = std::min(action.steps.end, steps);
  if (!next_step_) {
    next_step_ = action.steps.begin;
    await_at_work(at_work_.awaited_before(action.program, frame, segment, action.steps.begin));
  }
  for (int& step = *next_step_; step < end; ++step) {
    if (!run({action.program, frame, segment, step}, joins.awaited[static_cast<size_t>(step)])) {
      return false;
    }
    got_further_ = true;
  }
  next_step_.reset();
  if (end < steps) return true;
  std::vector<FrameStep> awaited;
  for (const int other : joins.at_end) {
    if (other >= 0) awaited.push_back({action.program, frame, segment, other});
  }
  await(awaited);
  await_at_work(at_work_.awaited_by_end(action.program, frame, segment));
  return true;
}

bool StageClocks::run(const FrameStep& step, const LaneSteps& awaited) {
  const Place place = place_of(step);
  const NodeFacts& node = facts(place);
  const std::vector<StepAtWork> late =
      at_work_.awaited_by(step.program, step.frame, step.segment, step.step, node.lane);
  std::vector<FrameStep> before;
  for (const int other : awaited) {
    if (other >= 0) before.push_back({step.program, step.frame, step.segment, other});
  }
  for (const StepAtWork other : late) before.push_back(frame_step(other));
  if (node.lane != Lane::compute) {
    double begin = std::max(time(node.lane), compute());
    for (const FrameStep& other : before) begin = std::max(begin, done(other));
    return run_call(step, begin);
  }
  await(before);
  const std::optional<double> begin = meet(node, compute());
  if (!begin) return false;
  for (const StepAtWork other : late) at_work_.end(other);
  at_work_.end_known_at(step.program, step.frame, step.segment, step.step);
  compute() = *begin + node.seconds;
  if (pass_ == kPredicted) computing_ += node.seconds;
  if (pass_ >= kPredicted && node.seconds > 0) computed_.push_back({place, *begin, compute()});
  return true;
}

bool StageClocks::run_call(const FrameStep& step, double begin) {
  const Place place = place_of(step);
  const NodeFacts& node = facts(place);
  const std::optional<double> all = meet(node, begin);
  if (!all) return false;
  time(node.lane) = *all + node.seconds;
  done(step) = time(node.lane);
  calls_of_lane_[static_cast<size_t>(node.lane)].push_back(calls_.size());
  calls_.push_back({place, pass_, begin, *all, time(node.lane)});
  at_work_.begin(step.program, step.frame, step.segment, step.step);
  return true;
}

std::optional<double> StageClocks::meet(const NodeFacts& node, double arrival) {
  if (!node.calls) return arrival;
  if (!std::exchange(has_arrived_, true)) meetings_.arrive(*node.calls, stage_, arrival);
  std::optional<double> begin = meetings_.begin(*node.calls, stage_);
  if (!begin && std::exchange(begins_alone_, false)) begin = arrival;
  if (begin) has_arrived_ = false;
  return begin;
}

bool StageClocks::run(const StageMessage& message) {
  const Program& program = *programs_[static_cast<size_t>(message.hold.program)];
  const ChunkPlacement& placement = step_.programs->sets.front().placement;
  if (is_post(message.call)) {
    const Mesh& mesh = program.mesh();
    const std::array axes{mesh.pipeline()};
    const int peer = mesh.group(program.rank(), axes)[static_cast<size_t>(message.peer)];
    meetings_.post(pass_, message.message, placement.channel(message.message), compute(),
                   seconds_.message(program, message.hold.values, peer));
    return true;
  }
  const auto moves = meetings_.moves(pass_, message.message);
  if (!moves) return false;
  if (pass_ == kPredicted) {
    PredictedSeconds& times = messages_[message.message.kind];
    times.exposed += std::max(0.0, moves->end - std::max(compute(), moves->begin));
    times.waiting += std::max(0.0, moves->begin - compute());
    ++times.calls;
    times.seconds += moves->end - moves->begin;
  }
  compute() = std::max(compute(), moves->end);
  return true;
}

double& StageClocks::done(const FrameStep& step) {
  auto& of_frame = done_[{step.program, step.frame}];
  const ProgramMemory& memory = plan_.programs[static_cast<size_t>(step.program)];
  if (of_frame.empty()) {
    for (const std::vector<int>& nodes : memory.nodes) of_frame.emplace_back(nodes.size(), 0.0);
  }
  return of_frame[static_cast<size_t>(step.segment)][static_cast<size_t>(step.step)];
}

StageClocks::Place StageClocks::place_of(const FrameStep& step) const {
  const ProgramMemory& memory = plan_.programs[static_cast<size_t>(step.program)];
  const std::vector<int>& nodes = memory.nodes[static_cast<size_t>(step.segment)];
  return {step.program, nodes[static_cast<size_t>(step.step)]};
}

StageClocks::FrameStep StageClocks::frame_step(StepAtWork which) const {
  const OutlastingStep& step = at_work_.step(which);
  return {step.program, which.frame, step.segment_index, step.step};
}

void StageClocks::await_at_work(const std::vector<StepAtWork>& steps) {
  std::vector<FrameStep> awaited;
  for (const StepAtWork step : steps) awaited.push_back(frame_step(step));
  await(awaited);
  for (const StepAtWork step : steps) at_work_.end(step);
}

/// The wait counts for the calls that the lane of the last one makes meanwhile.
void StageClocks::await(std::span<const FrameStep> steps) {
  const auto last =
      std::ranges::max_element(steps, {}, [&](const FrameStep& step) { return done(step); });
  if (last == steps.end() || done(*last) <= compute()) return;
  const double end = done(*last);
  const Lane lane = facts(place_of(*last)).lane;
  // What the compute lane waits for within [begin, end].
  const auto waits_within = [&](double begin, double call_end) {
    return std::max(0.0, std::min(call_end, end) - std::max(begin, compute()));
  };
  std::vector<size_t>& open = calls_of_lane_[static_cast<size_t>(lane)];
  std::erase_if(open, [&](size_t call) { return calls_[call].end <= compute(); });
  for (const size_t index : open) {
    Call& call = calls_[index];
    call.exposed += waits_within(call.begin, call.end);
    call.waiting += waits_within(call.arrived, call.begin);
  }
  compute() = end;
}

std::map<std::string, double> StageClocks::computed_beside(const Call& call) const {
  std::map<std::string, double> result;
  auto computed =
      std::ranges::lower_bound(computed_, call.begin, std::ranges::less_equal(), &Computed::end);
  for (; computed != computed_.end() && computed->begin < call.end; ++computed) {
    const double both = std::min(computed->end, call.end) - std::max(computed->begin, call.begin);
    if (both <= 0) continue;
    const Place place = computed->place;
    const Node& node =
        programs_[static_cast<size_t>(place.program)]->nodes()[static_cast<size_t>(place.node)];
    result[fmt::format("{} of {}", node.operation->name(), word(node.block))] += both;
  }
  return result;
}

PredictedStage StageClocks::predicted() const {
  std::map<std::pair<int, int>, PredictedCall> by_place;
  std::vector<std::pair<int, int>> order;  // in which they first begin
  for (const Call& call : calls_) {
    if (call.pass != kPredicted) continue;
    const Place place = call.place;
    const Program* const program = programs_[static_cast<size_t>(place.program)];
    const auto [found, is_new] = by_place.try_emplace({place.program, place.node});
    if (is_new) order.emplace_back(place.program, place.node);
    PredictedCall& sum = found->second;
    sum.program = program;
    sum.node = &program->nodes()[static_cast<size_t>(place.node)];
    ++sum.times.calls;
    sum.times.seconds += call.end - call.begin;
    sum.times.exposed += call.exposed;
    sum.times.waiting += call.waiting;
    for (const auto& [name, seconds] : computed_beside(call)) sum.times.beside[name] += seconds;
  }
  PredictedStage result{.computing = computing_, .calls = {}, .messages = messages_};
  for (const auto& place : order) result.calls.push_back(std::move(by_place.at(place)));
  return result;
}

}  // namespace tessera
