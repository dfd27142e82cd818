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
        static_cast<size_t>(std::ranges::find(memory.order, action.segment) - memory.order.begin());
    for (const Value input : memory.inputs.at(segment)) write(action.program, frame, input);
    std::set<int> made;
    pending_.clear();
    const Program& of = *programs_[static_cast<size_t>(action.program)];
    for (size_t step = 0; step < memory.nodes[segment].size(); ++step) {
      const int node = memory.nodes[segment][step];
      const Lane lane = of.nodes()[static_cast<size_t>(node)].operation->lane();
      if (lane == Lane::compute) end(action.program, frame, memory.joins[segment], step);
      run_node(action.program, frame, node);
      if (lane != Lane::compute) pending_[static_cast<int>(step)] = node;
      for (const Value output : programs_[static_cast<size_t>(action.program)]
                                    ->nodes()[static_cast<size_t>(node)]
                                    .outputs) {
        made.insert(output.id);
      }
    }
    end_all(action.program, frame);
    const Program& program = of;
    for (const Value output : program.outputs()) {  // the caller reads them now
      const bool due = made.contains(program.base(output).id) || made.contains(output.id);
      if (due && !holds(action.program, frame, output)) {
        lose("output", action.program, output, "its segment's end");
      }
    }
  }

  /// Ends what a step of the compute lane waits for, and what those steps have waited for: also all
  /// that is before them on their lanes.
  void end(int p, int frame, const Joins& joins, size_t step) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const int awaited = joins.awaited[step][lane];
      const auto is_of_lane = [&](int node) {
        const auto& nodes = programs_[static_cast<size_t>(p)]->nodes();
        return nodes[static_cast<size_t>(node)].operation->lane() == static_cast<Lane>(lane);
      };
      std::vector<int> ended;
      for (const auto& [other, node] : pending_) {
        if (other <= awaited && is_of_lane(node)) ended.push_back(other);
      }
      for (const int other : ended) {
        const auto found = pending_.find(other);
        if (found == pending_.end()) continue;
        check_operands(p, frame, found->second);
        pending_.erase(found);
        end(p, frame, joins, static_cast<size_t>(other));
      }
    }
  }

  void end_all(int p, int frame) {
    for (const auto& [step, node] : pending_) check_operands(p, frame, node);
    pending_.clear();
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
  std::map<int, int> pending_;  // by step: the nodes of other lanes that compute has not awaited
  std::vector<std::string> lost_;
};

}  // namespace tessera::testing
