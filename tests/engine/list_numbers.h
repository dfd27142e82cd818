#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/lane_operations.h"
#include "engine/random_lanes_run.h"
#include "engine/rendezvous.h"
#include "program/is_kept.h"

namespace tessera::testing {

/// Returns the outputs of a program that a segment makes.
inline std::vector<Value> outputs_of(const Program& program, const ProgramMemory& memory,
                                     int segment) {
  std::vector<Value> result;
  for (const Value output : program.outputs()) {
    const SegmentRange range = memory.ranges[static_cast<size_t>(output.id)];
    if (range.first == segment) result.push_back(output);
  }
  return result;
}

/// Returns the number of the action that gives a micro-batch its numbers, when the list has run so
/// often before.
inline int action_number(int time, int micro_batch) { return 10 * time + micro_batch; }

/// Computes what lists give, without lanes and without memory: a step reads what the last steps
/// before it in its list have written. The steps are LaneSum and LaneCompute.
class ListNumbers {
 public:
  /// Both are by rank.
  ListNumbers(Rendezvous& lists, std::span<const std::vector<const Program*>> programs,
              std::span<const MemoryPlan> plans)
      : lists_(lists) {
    for (int rank = 0; rank < lists.ranks(); ++rank) {
      const auto r = static_cast<size_t>(rank);
      follow(rank, programs[r], plans[r]);
    }
    ends_ = lists.ends([&](int rank, size_t step) { compute(rank, step); });
  }

  bool ends() const { return ends_; }
  /// Returns the outputs of a rank's segments, in the order of its list, and all programs' states
  /// at the end.
  std::vector<float> of(int rank) const {
    std::vector<float> all;
    for (const Cell& cell : results_[static_cast<size_t>(rank)]) {
      all.insert(all.end(), cell->begin(), cell->end());
    }
    return all;
  }

 private:
  using Cell = std::shared_ptr<std::vector<float>>;
  /// What a step reads and writes.
  struct Access {
    std::vector<Cell> reads;
    Cell write;
  };
  /// The memory of a value: its name if it is kept; or else its program, frame and id.
  using Name = std::tuple<std::string, int, int, int>;

  void follow(int rank, std::span<const Program* const> programs, const MemoryPlan& plan) {
    std::map<Name, Cell> cells;
    std::set<Name> received;
    const auto name_of = [&](int program, int frame, Value value) -> Name {
      const ValueInfo& info = programs[static_cast<size_t>(program)]->info(value);
      if (is_kept(info)) return {info.name, -1, -1, -1};
      return {"", program, frame, value.id};
    };
    const auto given = [&](Value value, const Program& program, int action) {
      return std::make_shared<std::vector<float>>(
          given_numbers(rank, value.id, action, program.spec(value).shape.elements()));
    };
    const auto for_each_kept = [&](auto&& visit) {
      for (int program = 0; program < std::ssize(programs); ++program) {
        const auto& values = programs[static_cast<size_t>(program)]->values();
        for (int id = 0; id < std::ssize(values); ++id) {
          if (is_kept(values[static_cast<size_t>(id)])) visit(program, Value{id});
        }
      }
    };
    for_each_kept([&](int program, Value value) {
      cells[name_of(program, 0, value)] = given(value, *programs[static_cast<size_t>(program)], 0);
    });
    std::vector<Access>& accesses = accesses_.emplace_back();
    std::vector<Cell>& results = results_.emplace_back();
    for (const Rendezvous::Step& step : lists_.steps(rank)) {
      Access& access = accesses.emplace_back();
      if (step.message != nullptr) {
        const Hold& hold = step.message->hold;
        const int frame =
            plan.programs[static_cast<size_t>(hold.program)].frames.at(hold.micro_batch);
        const Name name = name_of(hold.program, frame, hold.values.front());
        if (step.message->sends && hold.begins) sent_[step.begins[0]] = cells.at(name);
        if (step.message->sends || hold.begins) continue;
        access.write = cells[name] = std::make_shared<std::vector<float>>();
        received.insert(name);
        continue;
      }
      if (step.program < 0) continue;
      const Program& program = *programs[static_cast<size_t>(step.program)];
      const ProgramMemory& memory = plan.programs[static_cast<size_t>(step.program)];
      const auto name = [&](Value value) { return name_of(step.program, step.frame, value); };
      if (step.begins_segment) {
        for (const Value input : memory.inputs[static_cast<size_t>(step.segment)]) {
          if (received.erase(name(input)) > 0) continue;
          cells[name(input)] = given(input, program, action_number(step.time, step.micro_batch));
        }
      }
      if (step.ends_segment) {
        for (const Value output : outputs_of(program, memory, step.segment)) {
          results.push_back(cells.at(name(output)));
        }
      }
      if (step.node == nullptr) continue;
      for (const Value input : step.node->inputs) access.reads.push_back(cells.at(name(input)));
      access.write = std::make_shared<std::vector<float>>();
      const Value written =
          step.node->outputs.empty() ? step.node->inputs[0] : step.node->outputs[0];
      cells[name(written)] = access.write;
      if (!step.begins.empty()) addends_[step.begins[0]][rank] = access.reads[0];
    }
    for_each_kept(
        [&](int program, Value value) { results.push_back(cells.at(name_of(program, 0, value))); });
  }

  void compute(int rank, size_t index) const {
    const Rendezvous::Step& step = lists_.steps(rank)[index];
    const Access& access = accesses_[static_cast<size_t>(rank)][index];
    if (!access.write) return;
    std::vector<float>& to = *access.write;
    if (step.message != nullptr) {
      to = *sent_.at(step.awaits[0]);
    } else if (!step.begins.empty()) {
      for (const int member : lists_.members(step.begins[0].first)) {
        const std::vector<float>& addend = *addends_.at(step.begins[0]).at(member);
        TESSERA_CHECK(!addend.empty(), "a sum begins before rank {} has its addend", member);
        to.resize(addend.size());
        for (size_t i = 0; i < to.size(); ++i) to[i] += addend[i];
      }
    } else {
      const std::vector<float>&a = *access.reads[0], &b = *access.reads[1];
      TESSERA_CHECK(!a.empty() && !b.empty(), "step {} begins before its inputs are there", index);
      for (size_t i = 0; i < a.size(); ++i) to.push_back(LaneCompute::computed(a[i], b[i]));
    }
  }

  const Rendezvous& lists_;
  std::vector<std::vector<Access>> accesses_;                   // by rank and step
  std::vector<std::vector<Cell>> results_;                      // by rank
  std::map<std::pair<int, int>, Cell> sent_;                    // by meeting and number
  std::map<std::pair<int, int>, std::map<int, Cell>> addends_;  // the same, and by rank
  bool ends_ = false;
};

}  // namespace tessera::testing
