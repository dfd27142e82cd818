#include "engine/joins.h"

#include <algorithm>
#include <utility>

#include "engine/touched_memory.h"

namespace tessera {
namespace {

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

bool Joins::outlasts(int step, int end) const {
  if (end == std::ssize(busy_until)) return std::ranges::binary_search(outlasting, step);
  return busy_until[static_cast<size_t>(step)] >= end - 1;
}

Joins find_joins(const Program& program, std::span<const int> nodes) {
  return JoinFinder(program, nodes).find();
}

}  // namespace tessera
