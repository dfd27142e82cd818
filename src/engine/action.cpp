#include "engine/action.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "program/is_kept.h"

namespace tessera {
namespace {

bool is_backward(const Node& node) {
  return node.phase == Phase::backward || node.phase == Phase::recompute;
}

/// Returns, by node, true for backward nodes on whose results an output of the program depends.
std::vector<bool> needed_by_outputs(const Program& program) {
  const std::vector<Node>& nodes = program.nodes();
  std::vector<bool> wanted(program.values().size(), false);
  for (const Value output : program.outputs()) wanted[static_cast<size_t>(output.id)] = true;
  std::vector<bool> needed(nodes.size(), false);
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& node = nodes[i];
    if (!is_backward(node)) continue;
    needed[i] = std::ranges::any_of(
        node.outputs, [&](Value output) { return wanted[static_cast<size_t>(output.id)]; });
    if (!needed[i]) continue;
    for (const Value input : node.inputs) wanted[static_cast<size_t>(input.id)] = true;
  }
  return needed;
}

/// The values that a node reads or writes, by what names the value that owns the memory.
template <typename Name>
struct TouchedMemory {
  /// `name_of` returns the name of a base.
  template <typename NameOf>
  TouchedMemory(const Program& program, const Node& node, NameOf&& name_of) {
    const auto base = [&](Value value) { return name_of(program.base(value)); };
    for (const Value output : node.outputs) written.insert(base(output));
    for (const int input : node.operation->updated_inputs()) {
      written.insert(base(node.inputs[static_cast<size_t>(input)]));
    }
    all = written;
    for (const Value input : node.inputs) all.insert(base(input));
  }

  bool conflicts_with(const TouchedMemory& other) const {
    const auto overlap = [](const std::set<Name>& a, const std::set<Name>& b) {
      return std::ranges::any_of(a, [&](const Name& value) { return b.contains(value); });
    };
    return overlap(written, other.all) || overlap(all, other.written);
  }

  std::set<Name> written;
  std::set<Name> all;  // written or read
};

/// Finds the joins of a segment. A step knows, of each lane, the last step that is done before it
/// begins. It knows what the steps know that it awaits.
class JoinFinder {
 public:
  JoinFinder(const Program& program, std::span<const int> nodes)
      : program_(program),
        nodes_(nodes),
        awaited_(nodes.size(), kNoSteps),
        known_(nodes.size(), kNoSteps) {
    for (const int node : nodes) {
      touched_.emplace_back(program, program.nodes()[static_cast<size_t>(node)],
                            [](Value base) { return base.id; });
      lanes_.push_back(program.nodes()[static_cast<size_t>(node)].operation->lane());
    }
  }

  Joins find() {
    const auto step_count = static_cast<int>(nodes_.size());
    Joins joins{.awaited = {}, .busy_until = std::vector<int>(nodes_.size(), step_count - 1)};
    std::array<LaneSteps, kLanes> known;  // by lane: what its next step knows at least
    known.fill(kNoSteps);
    for (int step = 0; step < step_count; ++step) {
      const Lane lane = lanes_[index(step)];
      LaneSteps& own = known[index(lane)];
      if (lane != Lane::compute) learn(own, known[index(Lane::compute)]);
      await_conflicts(step, own);
      if (lane == Lane::compute) {
        joins.busy_until[index(step)] = step;
        end_pending(own, step - 1, joins);
      } else {
        own[index(lane)] = step;
        pending_[index(lane)].push_back(step);
      }
      known_[index(step)] = own;
    }
    joins.awaited = std::move(awaited_);
    end_segment(joins);
    return joins;
  }

 private:
  static size_t index(int step) { return static_cast<size_t>(step); }
  static size_t index(Lane lane) { return static_cast<size_t>(lane); }

  static void learn(LaneSteps& known, const LaneSteps& other) {
    for (size_t lane = 0; lane < kLanes; ++lane) known[lane] = std::max(known[lane], other[lane]);
  }

  /// Lets a step wait for the last step of each other lane that conflicts with it, unless it knows
  /// that this step is done.
  void await_conflicts(int step, LaneSteps& known) {
    LaneSteps conflicts = kNoSteps;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      if (lane == index(lanes_[index(step)])) continue;
      const std::vector<int>& steps = pending_[lane];
      const auto found = std::find_if(steps.rbegin(), steps.rend(), [&](int other) {
        return touched_[index(step)].conflicts_with(touched_[index(other)]);
      });
      if (found != steps.rend() && *found > known[lane]) conflicts[lane] = *found;
    }
    for (size_t lane = 0; lane < kLanes; ++lane) {
      if (conflicts[lane] < 0) continue;
      const auto knows_it = [&](int other) {
        return other >= 0 && other != conflicts[lane] &&
               known_[index(other)][lane] >= conflicts[lane];
      };
      if (!std::ranges::any_of(conflicts, knows_it)) {
        awaited_[index(step)][lane] = conflicts[lane];
      }
    }
    for (const int awaited : awaited_[index(step)]) {
      if (awaited >= 0) learn(known, known_[index(awaited)]);
    }
  }

  /// Ends the steps that the compute lane knows to be done.
  void end_pending(const LaneSteps& known, int busy_until, Joins& joins) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      std::erase_if(pending_[lane], [&](int step) {
        if (step > known[lane]) return false;
        joins.busy_until[index(step)] = busy_until;
        return true;
      });
    }
  }

  /// Divides what compute does not know to be done into what it awaits now and what goes on.
  void end_segment(Joins& joins) const {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      for (const int step : pending_[lane]) {
        if (is_seen_by_caller(step)) joins.at_end[lane] = step;
      }
    }
    for (size_t lane = 0; lane < kLanes; ++lane) {
      for (const int step : pending_[lane]) {
        const auto is_known = [&](int awaited) {
          return awaited >= 0 && known_[index(awaited)][lane] >= step;
        };
        if (!std::ranges::any_of(joins.at_end, is_known)) joins.outlasting.push_back(step);
      }
    }
    std::ranges::sort(joins.outlasting);
  }

  /// Returns whether a step uses memory that the caller may read or write after the segment.
  bool is_seen_by_caller(int step) const {
    return std::ranges::any_of(touched_[index(step)].all, [&](int base) {
      const auto is_base = [&](Value output) { return program_.base(output).id == base; };
      return program_.info(Value{base}).kind == ValueKind::input ||
             std::ranges::any_of(program_.outputs(), is_base);
    });
  }

  const Program& program_;
  std::span<const int> nodes_;
  std::vector<TouchedMemory<int>> touched_;       // by step
  std::vector<Lane> lanes_;                       // by step
  std::vector<LaneSteps> awaited_;                // by step
  std::vector<LaneSteps> known_;                  // by step: what is done when it is done
  std::array<std::vector<int>, kLanes> pending_;  // by lane: what no step of compute knows yet
};

}  // namespace

std::vector<int> segment_nodes(const Program& program, Segment segment) {
  const std::vector<bool> needed = needed_by_outputs(program);
  const auto belongs = [&](size_t index, const Node& node) {
    switch (segment) {
      case Segment::whole:
        return true;
      case Segment::forward:
        return !is_backward(node);
      case Segment::backward:
        return is_backward(node);
      case Segment::input_gradients:
        return is_backward(node) && needed[index];
      case Segment::weight_gradients:
        return is_backward(node) && !needed[index];
    }
    throw InternalError("unknown Segment");
  };
  std::vector<int> result;
  for (size_t i = 0; i < program.nodes().size(); ++i) {
    const Node& node = program.nodes()[i];
    const bool is_view = !node.outputs.empty() && program.info(node.outputs[0]).view.has_value();
    if (!is_view && belongs(i, node)) result.push_back(static_cast<int>(i));
  }
  return result;
}

bool Joins::outlasts(int step, int end) const {
  if (end == std::ssize(busy_until)) return std::ranges::binary_search(outlasting, step);
  return busy_until[static_cast<size_t>(step)] >= end - 1;
}

Joins find_joins(const Program& program, std::span<const int> nodes) {
  return JoinFinder(program, nodes).find();
}

LateWaits find_late_waits(std::span<const Program* const> programs,
                          std::span<const std::vector<std::vector<int>>> nodes,
                          std::span<const OutlastingStep> outlasting) {
  // A kept value is one for all programs. Other values are those of their program.
  using Name = std::tuple<ValueKind, std::string, int, int>;  // kind, name, program, id
  const auto touched_by = [&](int program_index, size_t segment, size_t step) {
    const Program& program = *programs[static_cast<size_t>(program_index)];
    const int node = nodes[static_cast<size_t>(program_index)][segment][step];
    return TouchedMemory<Name>(program, program.nodes()[static_cast<size_t>(node)],
                               [&](Value base) -> Name {
                                 const ValueInfo& info = program.info(base);
                                 if (is_kept(info)) return {info.kind, info.name, -1, -1};
                                 return {info.kind, "", program_index, base.id};
                               });
  };
  const auto without_frames = [](TouchedMemory<Name> touched) {
    const auto of_frame = [](const Name& name) { return std::get<2>(name) >= 0; };
    std::erase_if(touched.written, of_frame);
    std::erase_if(touched.all, of_frame);
    return touched;
  };
  LateWaits waits(programs.size());
  std::vector<TouchedMemory<Name>> awaited;
  std::map<Name, std::set<size_t>> users;  // by value: the outlasting steps that use it
  for (const OutlastingStep& step : outlasting) {
    awaited.push_back(touched_by(step.program, static_cast<size_t>(step.segment_index),
                                 static_cast<size_t>(step.step)));
    for (const Name& name : awaited.back().all) users[name].insert(awaited.size() - 1);
  }
  for (int program = 0; program < std::ssize(programs); ++program) {
    const auto& segments = nodes[static_cast<size_t>(program)];
    auto& by_segment = waits[static_cast<size_t>(program)];
    for (size_t segment = 0; segment < segments.size(); ++segment) {
      auto& by_step = by_segment.emplace_back(segments[segment].size());
      for (size_t step = 0; step < by_step.size() && !awaited.empty(); ++step) {
        const TouchedMemory<Name> own = touched_by(program, segment, step);
        std::set<size_t> candidates;
        for (const Name& name : own.all) {
          const auto found = users.find(name);
          if (found != users.end()) candidates.insert(found->second.begin(), found->second.end());
        }
        for (const size_t i : candidates) {
          if (!own.conflicts_with(awaited[i])) continue;
          const bool any_frame = without_frames(own).conflicts_with(without_frames(awaited[i]));
          by_step[step].push_back({.outlasting = static_cast<int>(i), .same_frame = !any_frame});
        }
      }
    }
  }
  return waits;
}

}  // namespace tessera
