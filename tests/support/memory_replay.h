#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "engine/memory_plan.h"
#include "program/program.h"

namespace tessera::testing {

/// Follows a plan's actions byte by byte, knowing nothing of lifetimes: whoever writes memory owns
/// it, and whoever reads a value must find that it still owns all of its memory. A node of another
/// lane than that of computing may be at work until the compute lane waits for it, by the plan's
/// joins: its operands and its workspace must be as they were until then. It says what an executor
/// would compute wrongly.
class MemoryReplay {
 public:
  MemoryReplay(std::span<const Program* const> programs, const MemoryPlan& plan)
      : programs_(programs),
        plan_(plan),
        owners_(static_cast<size_t>(plan.arena_bytes / kLine), -1) {}

  /// The first few values that were lost, empty if there are none.
  std::vector<std::string> run(std::span<const Action> actions) {
    own_kept_values();
    for (const Action& action : actions) follow(action);
    while (!pending_.empty()) end(*pending_.begin());
    check_kept_values();
    return lost_;
  }

 private:
  static constexpr int64_t kLine = 64;
  using Owner = std::tuple<std::string, int, int, int>;  // kind and name, program, frame, value

  int number_of(const Owner& owner) {
    return numbers_.try_emplace(owner, static_cast<int>(numbers_.size())).first->second;
  }
  static bool is_kept(const ValueInfo& info) {
    return info.kind != ValueKind::input && info.kind != ValueKind::computed;
  }
  Owner owner_of(int program, int frame, Value value) const {
    const Program& of = *programs_[static_cast<size_t>(program)];
    const Value base = of.base(value);
    const ValueInfo& info = of.info(base);
    if (is_kept(info)) return {fmt::format("{} {}", int(info.kind), info.name), -1, -1, -1};
    return {info.name, program, frame, base.id};
  }
  int64_t offset_of(int program, int frame, Value value) const {
    return plan_.programs[static_cast<size_t>(program)]
        .values[static_cast<size_t>(frame)][static_cast<size_t>(value.id)];
  }

  void own(int64_t offset, int64_t bytes, int owner) {
    if (offset < 0) return;  // given
    for (int64_t line = offset / kLine; line * kLine < offset + bytes; ++line) {
      owners_.at(static_cast<size_t>(line)) = owner;
    }
  }
  bool owns(int64_t offset, int64_t bytes, int owner) const {
    if (offset < 0) return true;
    for (int64_t line = offset / kLine; line * kLine < offset + bytes; ++line) {
      if (owners_.at(static_cast<size_t>(line)) != owner) return false;
    }
    return true;
  }
  void write(int program, int frame, Value value) {
    const Program& of = *programs_[static_cast<size_t>(program)];
    own(offset_of(program, frame, value), of.spec(value).bytes(),
        number_of(owner_of(program, frame, value)));
  }
  bool holds(int program, int frame, Value value) {
    const Program& of = *programs_[static_cast<size_t>(program)];
    return owns(offset_of(program, frame, value), of.spec(value).bytes(),
                number_of(owner_of(program, frame, value)));
  }
  void lose(const std::string& what, int program, Value value, std::string_view by) {
    if (lost_.size() > 5) return;
    lost_.push_back(fmt::format("{} {} of program {} at {}", what,
                                programs_[static_cast<size_t>(program)]->info(value).name, program,
                                by));
  }

  void own_kept_values() {
    for (int p = 0; p < std::ssize(programs_); ++p) {
      const auto& values = programs_[static_cast<size_t>(p)]->values();
      for (int id = 0; id < std::ssize(values); ++id) {
        if (is_kept(values[static_cast<size_t>(id)])) write(p, 0, Value{id});
      }
    }
  }
  void check_kept_values() {
    for (int p = 0; p < std::ssize(programs_); ++p) {
      const auto& values = programs_[static_cast<size_t>(p)]->values();
      for (int id = 0; id < std::ssize(values); ++id) {
        if (is_kept(values[static_cast<size_t>(id)]) && !holds(p, 0, Value{id})) {
          lose("kept value", p, Value{id}, "the end");
        }
      }
    }
  }

  void follow(const Action& action) {
    const ProgramMemory& memory = plan_.programs[static_cast<size_t>(action.program)];
    const int frame = memory.frames.at(action.micro_batch);
    const auto segment =
        static_cast<int>(std::ranges::find(memory.order, action.segment) - memory.order.begin());
    const auto& nodes = memory.nodes[static_cast<size_t>(segment)];
    const int end = std::min(action.steps.end, static_cast<int>(nodes.size()));
    if (action.steps.begin == 0) {
      if (segment == 0) end_frame(action.program, frame);
      made_.clear();
      for (const Value input : memory.inputs.at(static_cast<size_t>(segment))) {
        write(action.program, frame, input);
      }
    }
    const Program& of = *programs_[static_cast<size_t>(action.program)];
    for (int step = action.steps.begin; step < end; ++step) {
      const Step now{action.program, frame, segment, step};
      const Node& node = node_of(now);
      if (lane_of(now) == Lane::compute) end_awaited_by(now);
      run_node(action.program, frame, nodes[static_cast<size_t>(step)]);
      if (lane_of(now) != Lane::compute) pending_.insert(now);
      for (const Value output : node.outputs) made_.insert({action.program, output.id});
    }
    if (end < std::ssize(nodes)) return;
    const LaneSteps& at_end = memory.joins[static_cast<size_t>(segment)].at_end;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      if (at_end[lane] >= 0) end_up_to({action.program, frame, segment, at_end[lane]});
    }
    for (const Value output : of.outputs()) {  // the caller reads them now
      const bool due = made_.contains({action.program, of.base(output).id}) ||
                       made_.contains({action.program, output.id});
      if (due && !holds(action.program, frame, output)) {
        lose("output", action.program, output, "its segment's end");
      }
    }
  }

  /// A step of a segment in a frame.
  struct Step {
    int program = 0;
    int frame = 0;
    int segment = 0;
    int step = 0;
    auto operator<=>(const Step&) const = default;
  };

  const Node& node_of(const Step& step) const {
    const auto p = static_cast<size_t>(step.program);
    const auto& nodes = plan_.programs[p].nodes[static_cast<size_t>(step.segment)];
    return programs_[p]->nodes()[static_cast<size_t>(nodes[static_cast<size_t>(step.step)])];
  }
  Lane lane_of(const Step& step) const { return node_of(step).operation->lane(); }

  /// Ends what a step waits for, and what those steps have waited for.
  void end_awaited_by(const Step& step) {
    const Joins& joins =
        plan_.programs[static_cast<size_t>(step.program)].joins[static_cast<size_t>(step.segment)];
    for (const int awaited : joins.awaited[static_cast<size_t>(step.step)]) {
      if (awaited >= 0) end_up_to({step.program, step.frame, step.segment, awaited});
    }
    const auto& late =
        plan_.late_waits[static_cast<size_t>(step.program)][static_cast<size_t>(step.segment)]
                        [static_cast<size_t>(step.step)];
    for (const LateWait& wait : late) {
      const OutlastingStep& of = plan_.outlasting[static_cast<size_t>(wait.outlasting)];
      const std::set<Step> pending = pending_;
      for (const Step& other : pending) {
        const bool is_it = other.program == of.program && other.segment == of.segment_index &&
                           other.step == of.step;
        if (is_it && (!wait.same_frame || other.frame == step.frame)) end(other);
      }
    }
  }

  /// Ends a step and those before it on its lane, of the same segment.
  void end_up_to(const Step& last) {
    const std::set<Step> pending = pending_;
    for (const Step& step : pending) {
      const bool is_before = step.program == last.program && step.frame == last.frame &&
                             step.segment == last.segment && step.step <= last.step;
      if (is_before && lane_of(step) == lane_of(last)) end(step);
    }
  }

  void end(Step step) {  // a copy: it may be one of pending_
    if (pending_.erase(step) == 0) return;
    const auto p = static_cast<size_t>(step.program);
    check_operands(
        step.program, step.frame,
        plan_.programs[p].nodes[static_cast<size_t>(step.segment)][static_cast<size_t>(step.step)]);
    end_awaited_by(step);
  }

  /// Ends what an earlier micro-batch has left at work in a frame.
  void end_frame(int program, int frame) {
    const std::set<Step> pending = pending_;
    for (const Step& step : pending) {
      if (step.program == program && step.frame == frame) end(step);
    }
  }

  /// Checks that a node's operands and its workspace are as it left them.
  void check_operands(int p, int frame, int index) {
    const Node& node = programs_[static_cast<size_t>(p)]->nodes()[static_cast<size_t>(index)];
    const std::string_view name = node.operation->name();
    const auto at = [&](Value value) { return offset_of(p, frame, value); };
    for (const Value output : node.outputs) {
      if (!holds(p, frame, output)) lose("output at work", p, output, name);
    }
    for (const Value input : node.inputs) {
      const bool is_replaced = std::ranges::any_of(
          node.outputs, [&](Value output) { return at(output) >= 0 && at(output) == at(input); });
      if (!is_replaced && !holds(p, frame, input)) lose("input at work", p, input, name);
    }
    const ProgramMemory& memory = plan_.programs[static_cast<size_t>(p)];
    const int64_t bytes = memory.workspace_bytes[static_cast<size_t>(index)];
    const int64_t scratch =
        memory.workspaces[static_cast<size_t>(frame)][static_cast<size_t>(index)];
    if (bytes > 0 && !owns(scratch, bytes, workspace_owner(p, frame, index))) {
      lose("workspace at work of", p, node.outputs.empty() ? node.inputs[0] : node.outputs[0],
           name);
    }
  }

  /// The steps of another lane than that of computing run in turn, so they may share a workspace.
  int workspace_owner(int p, int frame, int index) {
    const Node& node = programs_[static_cast<size_t>(p)]->nodes()[static_cast<size_t>(index)];
    const Lane lane = node.operation->lane();
    return lane == Lane::compute ? number_of({"workspace", p, frame, index})
                                 : number_of({"workspace of a lane", -1, -1, int(lane)});
  }

  void run_node(int p, int frame, int index) {
    const Program& program = *programs_[static_cast<size_t>(p)];
    const ProgramMemory& memory = plan_.programs[static_cast<size_t>(p)];
    const Node& node = program.nodes()[static_cast<size_t>(index)];
    const std::string_view name = node.operation->name();
    const int64_t scratch =
        memory.workspaces[static_cast<size_t>(frame)][static_cast<size_t>(index)];
    const int64_t scratch_bytes = memory.workspace_bytes[static_cast<size_t>(index)];
    const int scratch_owner = workspace_owner(p, frame, index);
    if (scratch_bytes > 0) own(scratch, scratch_bytes, scratch_owner);
    for (const Value input : node.inputs) {
      if (!holds(p, frame, input)) lose("input", p, input, name);
    }
    std::set<int> replaced;  // inputs whose memory an output may take
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      write(p, frame, node.outputs[i]);
      const int taken = node.operation->in_place_input(static_cast<int>(i));
      if (taken < 0) continue;
      const Value input = node.inputs[static_cast<size_t>(taken)];
      const bool same = offset_of(p, frame, input) == offset_of(p, frame, node.outputs[i]) &&
                        program.spec(input).bytes() == program.spec(node.outputs[i]).bytes();
      // An operation that reads the same memory as another input would read what it wrote.
      const auto times = std::ranges::count_if(
          node.inputs, [&](Value other) { return program.base(other) == program.base(input); });
      if (same && times == 1) replaced.insert(input.id);
    }
    for (const Value input : node.inputs) {
      if (!replaced.contains(input.id) && !holds(p, frame, input)) {
        lose("input overwritten", p, input, name);
      }
    }
    for (const Value output : node.outputs) {
      if (!holds(p, frame, output)) lose("output", p, output, name);
    }
    if (scratch_bytes > 0 && !owns(scratch, scratch_bytes, scratch_owner)) {
      lose("workspace of", p, node.outputs.empty() ? Value{0} : node.outputs[0], name);
    }
  }

  std::span<const Program* const> programs_;
  const MemoryPlan& plan_;
  std::vector<int> owners_;  // by line
  std::map<Owner, int> numbers_;
  std::set<Step> pending_;              // of other lanes, which the compute lane has not awaited
  std::set<std::pair<int, int>> made_;  // by the segment that runs: programs and ids of values
  std::vector<std::string> lost_;
};

}  // namespace tessera::testing
