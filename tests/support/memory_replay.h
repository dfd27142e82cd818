#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "engine/memory_plan.h"
#include "program/is_kept.h"
#include "program/program.h"

namespace tessera::testing {

/// Follows a plan's list byte by byte, knowing nothing of lifetimes: whoever writes memory owns it,
/// and whoever reads a value must find that it still owns all of its memory. It says what an
/// executor would compute wrongly.
///
/// A node of another lane than that of computing may be at work until the compute lane waits for
/// it, by the plan's joins. Its operands and its workspace must be as they were until then. No
/// other node that may run beside it writes what it reads or writes, or reads what it writes: so
/// the joins suffice, whatever they follow from. A message writes or reads what is held at any time
/// of the hold.
class MemoryReplay {
 public:
  MemoryReplay(std::span<const Program* const> programs, const MemoryPlan& plan)
      : programs_(programs),
        plan_(plan),
        owners_(static_cast<size_t>(plan.arena_bytes / kLine), -1) {}

  /// The first few values that were lost, empty if there are none.
  std::vector<std::string> run(std::span<const ListEntry> list) {
    own_kept_values();
    for (const ListEntry& entry : list) {
      std::visit([&](const auto& known) { follow(known); }, entry);
    }
    while (!pending_.empty()) end(pending_.begin()->first);
    check_kept_values();
    return lost_;
  }
  std::vector<std::string> run(std::span<const Action> actions) {
    return run(std::vector<ListEntry>(actions.begin(), actions.end()));
  }

 private:
  static constexpr int64_t kLine = 64;
  using Owner = std::tuple<std::string, int, int, int>;  // kind and name, program, frame, value

  int number_of(const Owner& owner) {
    return numbers_.try_emplace(owner, static_cast<int>(numbers_.size())).first->second;
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

  /// A step of a segment in a frame.
  struct Step {
    int program = 0;
    int frame = 0;
    int segment = 0;
    int step = 0;
    bool operator==(const Step&) const = default;
  };
  /// Bytes that are read or written.
  struct Touch {
    int64_t begin = 0;
    int64_t end = 0;
    bool writes = false;
  };
  using Touches = std::vector<Touch>;
  /// A step of another lane than that of computing, which the compute lane has not awaited.
  struct Pending {
    Step step;
    Touches touches;
    std::set<int> known;  // the numbers of steps that are done when this one is: itself, too
  };
  using HeldKey = std::tuple<int, int, int>;  // program, frame, value

  void follow(const Action& action) {
    const ProgramMemory& memory = plan_.programs[static_cast<size_t>(action.program)];
    const int frame = memory.frames.at(action.micro_batch);
    const auto segment =
        static_cast<int>(std::ranges::find(memory.order, action.segment) - memory.order.begin());
    const auto& nodes = memory.nodes[static_cast<size_t>(segment)];
    const int end = std::min(action.steps.end, static_cast<int>(nodes.size()));
    if (action.steps.begin == 0) {
      if (segment == 0) end_frame(action.program, frame);
      made_[{action.program, frame}].clear();
      for (const Value input : memory.inputs.at(static_cast<size_t>(segment))) {
        if (arrived_.erase({action.program, frame, input.id}) > 0) continue;
        write(action.program, frame, input);
      }
    }
    const Program& of = *programs_[static_cast<size_t>(action.program)];
    for (int step = action.steps.begin; step < end; ++step) {
      run_step({action.program, frame, segment, step});
    }
    if (end < std::ssize(nodes)) return;
    const LaneSteps& at_end = memory.joins[static_cast<size_t>(segment)].at_end;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      if (at_end[lane] < 0) continue;
      end_all(known_to(find_pending({action.program, frame, segment, at_end[lane]})));
    }
    for (const Value output : of.outputs()) {  // the caller reads them now
      const std::set<int>& made = made_[{action.program, frame}];
      if (!made.contains(of.base(output).id) && !made.contains(output.id)) continue;
      check_alone({touch(action.program, frame, output, /*writes=*/false)}, {}, "output",
                  action.program, output);
      if (!holds(action.program, frame, output)) {
        lose("output", action.program, output, "its segment's end");
      }
    }
  }

  /// A message writes an input at any time of its hold, and reads an output.
  void follow(const Hold& hold) {
    const int frame = plan_.programs[static_cast<size_t>(hold.program)].frames.at(hold.micro_batch);
    for (const Value value : hold.values) {
      const HeldKey key{hold.program, frame, value.id};
      const bool is_input =
          programs_[static_cast<size_t>(hold.program)]->info(value).kind == ValueKind::input;
      if (hold.begins) {
        const Touch touched = touch(hold.program, frame, value, /*writes=*/is_input);
        check_alone({touched}, {}, "held value", hold.program, value);
        if (is_input) write(hold.program, frame, value);
        held_[key] = touched;
        continue;
      }
      held_.erase(key);
      if (is_input) arrived_.insert(key);
      if (!holds(hold.program, frame, value)) {
        lose("held value", hold.program, value, "the end of its hold");
      }
    }
  }

  const Node& node_of(const Step& step) const {
    const auto p = static_cast<size_t>(step.program);
    return programs_[p]->nodes()[static_cast<size_t>(node_index(step))];
  }
  int node_index(const Step& step) const {
    const auto& nodes =
        plan_.programs[static_cast<size_t>(step.program)].nodes[static_cast<size_t>(step.segment)];
    return nodes[static_cast<size_t>(step.step)];
  }
  Lane lane_of(const Step& step) const { return node_of(step).operation->lane(); }

  void run_step(const Step& now) {
    const Node& node = node_of(now);
    const Touches touches = touches_of(now);
    std::set<int> known = known_before(now);
    if (lane_of(now) == Lane::compute) end_all(known);
    check_alone(touches, known, node.operation->name(), now.program,
                node.outputs.empty() ? node.inputs[0] : node.outputs[0]);
    run_node(now.program, now.frame, node_index(now));
    if (lane_of(now) != Lane::compute) {
      known.insert(++count_);
      pending_[count_] = {.step = now, .touches = touches, .known = std::move(known)};
    }
    for (const Value output : node.outputs) made_[{now.program, now.frame}].insert(output.id);
  }

  /// Returns the bytes of a value. A given value has none in the arena, but a place of its own.
  Touch touch(int program, int frame, Value value, bool writes) {
    const Program& of = *programs_[static_cast<size_t>(program)];
    int64_t begin = offset_of(program, frame, value);
    if (begin < 0) begin = (int64_t{number_of(owner_of(program, frame, value))} + 1) << 40;
    return {begin, begin + of.spec(value).bytes(), writes};
  }

  /// Returns what a step reads and writes: its operands and its workspace.
  Touches touches_of(const Step& step) {
    const Node& node = node_of(step);
    Touches touches;
    for (const Value input : node.inputs) {
      touches.push_back(touch(step.program, step.frame, input, /*writes=*/false));
    }
    for (const int input : node.operation->updated_inputs()) {
      touches[static_cast<size_t>(input)].writes = true;
    }
    for (const Value output : node.outputs) {
      touches.push_back(touch(step.program, step.frame, output, /*writes=*/true));
    }
    const ProgramMemory& memory = plan_.programs[static_cast<size_t>(step.program)];
    const auto index = static_cast<size_t>(node_index(step));
    const int64_t scratch = memory.workspaces[static_cast<size_t>(step.frame)][index];
    const int64_t bytes = memory.workspace_bytes[index];
    if (bytes > 0) touches.push_back({scratch, scratch + bytes, /*writes=*/true});
    return touches;
  }

  /// Checks that nothing which may be at work beside it uses the same bytes, if one of the two
  /// writes them.
  void check_alone(const Touches& touches, const std::set<int>& done, std::string_view what,
                   int program, Value value) {
    const auto meet = [&](const Touch& other) {
      return std::ranges::any_of(touches, [&](const Touch& own) {
        return (own.writes || other.writes) && own.begin < other.end && other.begin < own.end;
      });
    };
    for (const auto& [number, pending] : pending_) {
      if (!done.contains(number) && std::ranges::any_of(pending.touches, meet)) {
        lose(fmt::format("{} meets {} at work:", what, node_of(pending.step).operation->name()),
             program, value, "its begin");
      }
    }
    for (const auto& [key, held] : held_) {
      if (meet(held)) lose(fmt::format("{} meets a message:", what), program, value, "its begin");
    }
  }

  /// Returns the number of a step that is pending; -1 if it is not.
  int find_pending(const Step& step) const {
    for (const auto& [number, pending] : pending_) {
      if (pending.step == step) return number;
    }
    return -1;
  }
  std::set<int> known_to(int number) const {
    const auto found = pending_.find(number);
    return found == pending_.end() ? std::set<int>{} : found->second.known;
  }

  /// Returns the pending steps that are done when a step begins, by the plan's joins and by the
  /// order of its lane.
  std::set<int> known_before(const Step& step) const {
    std::set<int> known;
    const auto p = static_cast<size_t>(step.program);
    const auto segment = static_cast<size_t>(step.segment);
    const auto index = static_cast<size_t>(step.step);
    const LaneSteps& awaited = plan_.programs[p].joins[segment].awaited[index];
    const auto is_awaited = [&](const Step& other) {
      if (other.program == step.program && other.frame == step.frame &&
          other.segment == step.segment &&
          std::ranges::find(awaited, other.step) != awaited.end()) {
        return true;
      }
      return std::ranges::any_of(plan_.late_waits[p][segment][index], [&](const LateWait& wait) {
        const OutlastingStep& of = plan_.outlasting[static_cast<size_t>(wait.outlasting)];
        return other.program == of.program && other.segment == of.segment_index &&
               other.step == of.step && (!wait.same_frame || other.frame == step.frame);
      });
    };
    for (const auto& [number, pending] : pending_) {
      const bool is_of_lane = lane_of(pending.step) == lane_of(step);
      if (is_of_lane || is_awaited(pending.step)) {
        known.insert(pending.known.begin(), pending.known.end());
      }
    }
    std::erase_if(known, [&](int number) { return !pending_.contains(number); });
    return known;
  }

  void end_all(const std::set<int>& numbers) {
    for (const int number : numbers) end(number);
  }

  void end(int number) {
    const auto found = pending_.find(number);
    if (found == pending_.end()) return;
    const Step step = found->second.step;
    pending_.erase(found);
    check_operands(step.program, step.frame, node_index(step));
  }

  /// Ends what an earlier micro-batch has left at work in a frame.
  void end_frame(int program, int frame) {
    std::set<int> known;
    for (const auto& [number, pending] : pending_) {
      if (pending.step.program != program || pending.step.frame != frame) continue;
      known.insert(pending.known.begin(), pending.known.end());
    }
    end_all(known);
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
  std::map<int, Pending> pending_;                     // by number, in the order of their begins
  int count_ = 0;                                      // of steps of other lanes so far
  std::map<HeldKey, Touch> held_;                      // while a message may use it
  std::set<HeldKey> arrived_;                          // inputs whose hold has ended
  std::map<std::pair<int, int>, std::set<int>> made_;  // by frame: by the segment that runs
  std::vector<std::string> lost_;
};

}  // namespace tessera::testing
