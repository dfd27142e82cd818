#pragma once

#include <map>
#include <set>
#include <span>
#include <vector>

#include "engine/arena_offsets.h"
#include "engine/frames_in_flight.h"

namespace tessera {

/// The steps of a situation on the timeline: one for each node that runs. Entries of the list in
/// the same situation share one period.
struct Period {
  int program = -1;        ///< -1, as the next one: nothing runs, a hold begins
  int segment_index = -1;  ///< in ProgramMemory::order
  int begin = 0;
  int steps = 1;
};

/// Follows a rank's list. It gives each micro-batch a frame of each program, and each situation a
/// period.
class Timeline {
 public:
  /// The lifetimes and the memory (see FramesInFlight) are by program; the lifetimes must outlive
  /// this. Throws InternalError if the list breaks the rules of holds.
  Timeline(std::span<const Program* const> programs, std::span<const Lifetimes> lifetimes,
           std::span<const ProgramMemory> memory, std::span<const ListEntry> list);

  /// Returns the frames of a program by micro-batch.
  const std::map<int, int>& frames(size_t program) const { return frames_[program]; }
  int frame_count(size_t program) const { return static_cast<int>(spans_[program].size()); }
  const std::set<Situation>& situations() const { return situations_; }
  const std::vector<Period>& periods() const { return periods_; }
  int steps() const { return steps_; }

  /// Returns the intervals in which a block of a frame is in use.
  std::vector<Interval> block_intervals(int block, FrameKey key) const;
  /// Returns the intervals in which the steps of a frame run that begin at `first` and end with
  /// `last`, in the same segment.
  std::vector<Interval> step_intervals(Moment first, Moment last, FrameKey key) const;

 private:
  /// Successive steps in which a frame is in the same state.
  struct FrameSpan {
    int begin = 0;
    int end = 0;
    int running = -1;        // the segment that runs; -1: none
    int segments_done = -1;  // of a frame that waits; otherwise -1
    std::vector<int> held;   // the indices of blocks that are in use whatever runs

    bool continues(const FrameSpan& before) const {
      return running < 0 && begin == before.end && running == before.running &&
             segments_done == before.segments_done && held == before.held;
    }
  };

  int take_frame(int program, int micro_batch);
  void add_period(Situation situation);
  /// Adds to a frame's spans the state that it is in during the latest period.
  FrameSpan& span_now(FrameKey key);

  std::span<const Lifetimes> lifetimes_;
  std::vector<std::map<int, int>> frames_;                  // by program, by micro-batch
  std::vector<std::vector<std::vector<FrameSpan>>> spans_;  // by program, by frame; ascending
  std::set<FrameKey> taken_;  // the frames of micro-batches that have more entries
  std::set<Situation> situations_;
  std::vector<Period> periods_;
  int steps_ = 0;
};

}  // namespace tessera
