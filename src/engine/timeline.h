#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "engine/arena_offsets.h"
#include "engine/frames_in_flight.h"

namespace tessera {

/// The steps of a situation on the timeline: one for each node that runs. Entries of the list in
/// the same situation share one period.
struct Period {
  int program = -1;        ///< -1, as the next one: nothing runs, a hold begins
  int segment_index = -1;  ///< in ProgramMemory::order
  int begin_step = 0;      ///< the first of the segment's steps that run
  int begin = 0;           ///< the position of that step on the timeline
  int steps = 1;
};

/// Follows a rank's list. It gives each micro-batch a frame of each program, and each situation a
/// period.
class Timeline {
 public:
  /// The lifetimes are by program. `plan` says what the programs are (see FramesInFlight), and
  /// which steps outlast their segments. Both must outlive this. Throws InternalError if the list
  /// breaks the rules of holds.
  Timeline(std::span<const Program* const> programs, std::span<const Lifetimes> lifetimes,
           const MemoryPlan& plan, std::span<const ListEntry> list);

  /// Returns the frames of a program by micro-batch.
  const std::map<int, int>& frames(size_t program) const { return frames_[program]; }
  int frame_count(size_t program) const { return static_cast<int>(spans_[program].size()); }
  /// Returns the situations, each with the steps that may be at work when it begins.
  std::map<Situation, std::set<StepAtWork>> situations() const;
  const std::vector<Period>& periods() const { return periods_; }
  int steps() const { return steps_; }

  /// Returns the intervals in which a block of a frame is in use.
  std::vector<Interval> block_intervals(int block, FrameKey key) const;
  /// Returns the intervals in which the steps of a frame run that begin at `first` and end with
  /// `last`, in the same segment.
  std::vector<Interval> step_intervals(Moment first, Moment last, FrameKey key) const;
  /// Returns the intervals after its segment in which an outlasting step of a frame may be at work.
  const std::vector<Interval>& late_intervals(StepAtWork step) const;

 private:
  /// Successive steps in which a frame is in the same state.
  struct FrameSpan {
    int begin = 0;
    int end = 0;
    int running = -1;            // the segment that runs; -1: none
    int begin_step = 0;          // the first step of that segment that runs
    std::optional<Moment> next;  // of a frame that waits
    std::vector<int> held;       // the indices of blocks that are in use whatever runs

    bool continues(const FrameSpan& before) const {
      return running < 0 && begin == before.end && running == before.running &&
             next == before.next && held == before.held;
    }
  };

  /// A situation on the timeline.
  struct Occurrence {
    int period = 0;  // index
    /// The steps at work when it begins, and the last of the period's steps at which they may be.
    std::map<StepAtWork, int> at_work;
  };

  int take_frame(int program, int micro_batch);
  /// Returns the situation, whose period is new if it has not occurred.
  Occurrence& occur(Situation situation);
  void add_period(const Situation& situation);
  /// Follows the list once more and notes which steps are at work. Returns whether any is new.
  bool note_steps_at_work(std::span<const ListEntry> list, StepsAtWork& steps);
  /// Follows one action; returns as note_steps_at_work() does.
  bool follow(const Action& action, FramesInFlight& in_flight, StepsAtWork& steps);
  int frame_of(int program, int micro_batch) const;
  /// Adds to a frame's spans the state that it is in during the latest period.
  FrameSpan& span_now(FrameKey key);
  /// Fills late_intervals_, when all steps at work are noted.
  void note_late_intervals();
  /// Adds the part of an interval of moments in which a frame runs.
  static void append_running(std::vector<Interval>& intervals, const FrameSpan& span, Moment first,
                             Moment last);

  std::span<const Program* const> programs_;
  std::span<const Lifetimes> lifetimes_;
  const MemoryPlan& plan_;
  std::vector<std::map<int, int>> frames_;                  // by program, by micro-batch
  std::vector<std::vector<std::vector<FrameSpan>>> spans_;  // by program, by frame; ascending
  std::set<FrameKey> taken_;  // the frames of micro-batches that have more entries
  std::map<Situation, Occurrence> situations_;
  std::map<StepAtWork, std::vector<Interval>> late_intervals_;
  /// By situation and the steps at work when it begins: those at work when it ends.
  std::map<std::pair<Situation, std::set<StepAtWork>>, std::set<StepAtWork>> followed_;
  std::vector<Period> periods_;
  int steps_ = 0;
};

}  // namespace tessera
