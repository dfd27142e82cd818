#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
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
#include "engine/rank_list.h"
#include "program/program.h"

namespace tessera::testing {

/// Says whether the lists of ranks come to their end, if a call or a message is taken when all of
/// its ranks have begun it. It follows the rules of lanes alone:
///  - A lane runs its steps in turn. A step of another lane than `compute` begins after all earlier
///    steps of the compute lane. It does not wait for those of other lanes.
///  - A step waits for those that the Joins of its segment name, and for those that the waits for
///    outlasting steps name and that have begun before it.
///  - The compute lane waits at the end of a segment for Joins::at_end, and before the first action
///    of a frame for all that has begun in that frame.
///  - The compute lane posts messages and does not wait for them until they are awaited.
class Rendezvous {
 public:
  /// A list's step of a lane, or a place where the compute lane only waits.
  struct Step {
    Lane lane = Lane::compute;
    int program = -1;  ///< the next four: of the action; -1 for a message
    int frame = -1;
    int segment = -1;
    int micro_batch = -1;
    int time = 0;                          ///< how often the list has run before
    const Node* node = nullptr;            ///< null for a message, and where the lane only waits
    const ListMessage* message = nullptr;  ///< null for an action
    bool begins_segment = false;
    bool ends_segment = false;
    std::vector<size_t> awaited;              ///< steps of the same rank
    std::vector<std::pair<int, int>> begins;  ///< meetings, and the number of the call there
    std::vector<std::pair<int, int>> awaits;  ///< the same, of those that end with this step
  };

  /// Adds the next rank, which runs its list so many times. All must outlive this. Throws
  /// InternalError if its n-th call in a group is of another operation than that of ranks before.
  void add(std::span<const Program* const> programs, const MemoryPlan& plan, const RankList& list,
           int times) {
    Writer(*this, programs, plan).write(list, times);
  }

  /// Returns whether all ranks come to the end. Calls done(rank, step) for each step that is done,
  /// in an order in which that may happen.
  bool ends(const std::function<void(int rank, size_t step)>& done = {}) {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        for (size_t lane = 0; lane < kLanes; ++lane) {
          while (move(r, lane, done)) moved = true;
        }
      }
    }
    return std::ranges::all_of(
        ranks_, [](const Rank& rank) { return std::ranges::all_of(rank.lanes, &Queue::is_done); });
  }

  /// Returns the steps at which lanes stand after ends(), one in a line.
  std::string stuck() const {
    std::string text;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (const Queue& queue : ranks_[r].lanes) {
        if (queue.is_done()) continue;
        const Step& step = ranks_[r].steps[queue.head()];
        text += fmt::format("rank {}, {}, step {}: {}\n", r, word(step.lane), queue.head(),
                            step.node != nullptr ? step.node->operation->name() : "a wait");
      }
    }
    return text;
  }

  int ranks() const { return static_cast<int>(ranks_.size()); }
  /// Returns the steps of a rank, in the order of its list.
  const std::vector<Step>& steps(int rank) const { return ranks_[static_cast<size_t>(rank)].steps; }
  /// Returns the ranks of a meeting, in the order of their positions.
  const std::vector<int>& members(int meeting) const {
    return meetings_[static_cast<size_t>(meeting)].members;
  }
  /// Returns the number of steps of lanes that wait for a step of an earlier action.
  int late_waits() const { return late_waits_; }

 private:
  /// The steps of a lane, and how many of them are done.
  struct Queue {
    std::vector<size_t> steps;
    size_t done = 0;
    bool has_begun = false;  // the first one that is not done

    bool is_done() const { return done == steps.size(); }
    size_t head() const { return steps[done]; }
  };
  struct Rank {
    std::vector<Step> steps;
    std::vector<bool> done;  // by step
    std::array<Queue, kLanes> lanes;
  };
  /// Calls that the same ranks make one after the other, or the messages from one to another.
  struct Meeting {
    std::vector<int> members;
    std::map<int, int> begun;             // by rank: the number of the last call that it has begun
    std::vector<std::string> operations;  // by number
  };
  /// What distinguishes meetings: the axes of a group, or -1 for messages; the ranks, the lane.
  using MeetingKey = std::tuple<std::vector<int>, std::vector<int>, Lane>;

  /// Writes the steps of one rank.
  class Writer {
   public:
    Writer(Rendezvous& all, std::span<const Program* const> programs, const MemoryPlan& plan)
        : all_(all),
          programs_(programs),
          plan_(plan),
          number_(all.ranks()),
          rank_(all.ranks_.emplace_back()) {}

    void write(const RankList& list, int times) {
      for (time_ = 0; time_ < times; ++time_) {
        for (const auto& entry : list) {
          std::visit([&](const auto& known) { write(known); }, entry);
        }
      }
      Step& end = add(Step{});  // the caller synchronizes
      for (const auto& [where, step] : last_) end.awaited.push_back(step);
      rank_.done.assign(rank_.steps.size(), false);
    }

   private:
    /// A step of a segment in a frame: program, frame, segment, step.
    using Where = std::tuple<int, int, int, int>;

    Step& add(Step step) {
      step.time = time_;
      rank_.lanes[static_cast<size_t>(step.lane)].steps.push_back(rank_.steps.size());
      return rank_.steps.emplace_back(std::move(step));
    }

    static Step step_of(const Action& action, int frame, int segment) {
      return {.program = action.program,
              .frame = frame,
              .segment = segment,
              .micro_batch = action.micro_batch};
    }

    void write(const Action& action) {
      const int p = action.program;
      const ProgramMemory& memory = plan_.programs[static_cast<size_t>(p)];
      const int frame = memory.frames.at(action.micro_batch);
      const auto segment =
          static_cast<int>(std::ranges::find(memory.order, action.segment) - memory.order.begin());
      const auto& nodes = memory.nodes[static_cast<size_t>(segment)];
      const Joins& joins = memory.joins[static_cast<size_t>(segment)];
      const int end = std::min(action.steps.end, static_cast<int>(nodes.size()));
      if (action.steps.begin == 0) {
        Step& begin = add(step_of(action, frame, segment));
        begin.begins_segment = true;
        for (const auto& [where, step] : last_) {
          const bool is_of_frame = std::get<0>(where) == p && std::get<1>(where) == frame;
          if (segment == 0 && is_of_frame) begin.awaited.push_back(step);
        }
      }
      for (int s = action.steps.begin; s < end; ++s) {
        const int index = nodes[static_cast<size_t>(s)];
        const Node& node = programs_[static_cast<size_t>(p)]->nodes()[static_cast<size_t>(index)];
        Step step = step_of(action, frame, segment);
        step.lane = node.operation->lane();
        step.node = &node;
        for (const int awaited : joins.awaited[static_cast<size_t>(s)]) {
          if (awaited >= 0) step.awaited.push_back(last_.at({p, frame, segment, awaited}));
        }
        await_outlasting({p, frame, segment, s}, step);
        meet(*programs_[static_cast<size_t>(p)], node, step);
        const Lane lane = step.lane;
        add(std::move(step));
        if (lane != Lane::compute) last_[{p, frame, segment, s}] = rank_.steps.size() - 1;
      }
      if (end < std::ssize(nodes)) return;
      Step& last = add(step_of(action, frame, segment));
      last.ends_segment = true;
      for (const int awaited : joins.at_end) {
        if (awaited >= 0) last.awaited.push_back(last_.at({p, frame, segment, awaited}));
      }
    }

    void await_outlasting(const Where& where, Step& step) {
      const auto [p, frame, segment, s] = where;
      for (const LateWait& wait : plan_.late_waits[static_cast<size_t>(p)][static_cast<size_t>(
               segment)][static_cast<size_t>(s)]) {
        const OutlastingStep& of = plan_.outlasting[static_cast<size_t>(wait.outlasting)];
        for (int other = 0; other < frame_count(of.program); ++other) {
          const auto begun = last_.find({of.program, other, of.segment_index, of.step});
          if (begun == last_.end() || (wait.same_frame && other != frame)) continue;
          step.awaited.push_back(begun->second);
          ++all_.late_waits_;
        }
      }
    }

    int frame_count(int program) const {
      int count = 0;
      for (const auto& [number, frame] : plan_.programs[static_cast<size_t>(program)].frames) {
        count = std::max(count, frame + 1);
      }
      return count;
    }

    /// Adds the calls that an operation makes in its groups.
    void meet(const Program& program, const Node& node, Step& step) {
      for (const std::vector<Axis>& axes : node.operation->group_axes()) {
        std::vector<int> indices;
        for (const Axis axis : axes) indices.push_back(axis.index);
        const int meeting = all_.meeting(
            {indices, program.mesh().group(number_, axes, node.operation->group_stages()),
             step.lane});
        step.begins.emplace_back(meeting, ++calls_[meeting]);
        expect_operation(step.begins.back(), node.operation->name());
      }
      step.awaits = step.begins;
    }

    /// Throws InternalError if another rank makes another call there.
    void expect_operation(const std::pair<int, int>& call, std::string_view name) {
      std::vector<std::string>& known = all_.meetings_[static_cast<size_t>(call.first)].operations;
      if (std::ssize(known) < call.second) known.emplace_back(name);
      const std::string& expected = known[static_cast<size_t>(call.second - 1)];
      TESSERA_CHECK(expected == name, "rank {} calls {} where another rank calls {}", number_, name,
                    expected);
    }

    void write(const ListMessage& message) {
      const int sender = message.sends ? number_ : message.peer;
      const int receiver = message.sends ? message.peer : number_;
      const int meeting = all_.meeting({{-1}, {sender, receiver}, message.lane});
      Step step{.message = &message};
      const std::tuple key{message.hold.program, message.hold.micro_batch,
                           message.hold.values.front().id};
      if (message.hold.begins) {
        posted_[key] = {meeting, ++calls_[meeting]};
        step.begins.push_back(posted_[key]);
      } else {
        step.awaits.push_back(posted_.at(key));
      }
      add(std::move(step));
    }

    Rendezvous& all_;
    std::span<const Program* const> programs_;
    const MemoryPlan& plan_;
    int number_;
    Rank& rank_;
    int time_ = 0;
    std::map<Where, size_t> last_;  // the last step of another lane than `compute`
    std::map<int, int> calls_;      // by meeting: how many this rank has begun
    std::map<std::tuple<int, int, int>, std::pair<int, int>> posted_;  // by message
  };

  int meeting(const MeetingKey& key) {
    const auto [found, is_new] = numbers_.try_emplace(key, static_cast<int>(meetings_.size()));
    if (is_new) meetings_.push_back({.members = std::get<1>(key), .begun = {}, .operations = {}});
    return found->second;
  }

  /// Returns whether the next step of a lane begins or ends now.
  bool move(size_t r, size_t lane, const std::function<void(int rank, size_t step)>& done) {
    Rank& rank = ranks_[r];
    Queue& queue = rank.lanes[lane];
    if (queue.is_done()) return false;
    const size_t index = queue.head();
    const Step& step = rank.steps[index];
    bool moved = false;
    if (!queue.has_begun) {
      const Queue& compute = rank.lanes[static_cast<size_t>(Lane::compute)];
      if (step.lane != Lane::compute && !compute.is_done() && compute.head() < index) return false;
      if (!std::ranges::all_of(step.awaited, [&](size_t s) { return rank.done[s]; })) return false;
      for (const auto& [meeting, number] : step.begins) {
        meetings_[static_cast<size_t>(meeting)].begun[static_cast<int>(r)] = number;
      }
      queue.has_begun = moved = true;
    }
    const bool have_met = std::ranges::all_of(step.awaits, [&](const auto& call) {
      Meeting& meeting = meetings_[static_cast<size_t>(call.first)];
      return std::ranges::all_of(meeting.members,
                                 [&](int member) { return meeting.begun[member] >= call.second; });
    });
    if (!have_met) return moved;
    rank.done[index] = true;
    queue.has_begun = false;
    ++queue.done;
    if (done) done(static_cast<int>(r), index);
    return true;
  }

  std::vector<Rank> ranks_;
  std::vector<Meeting> meetings_;
  std::map<MeetingKey, int> numbers_;
  int late_waits_ = 0;
};

}  // namespace tessera::testing
