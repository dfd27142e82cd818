#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "engine/memory_plan.h"
#include "program/program.h"

namespace tessera {

/// A frame of a program: the memory of one micro-batch. Another micro-batch reuses it afterwards.
struct FrameKey {
  int program = 0;
  int frame = 0;
  auto operator<=>(const FrameKey&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// Follows a rank's list: which frames are in flight and which of their values are held. It refuses
/// what breaks the rules of a list and returns the situations. The plan is made from these, and the
/// executor meets the same ones when it runs the list.
class FramesInFlight {
 public:
  /// Of each program, `memory` has the order, the inputs and the ranges. Both must outlive this.
  FramesInFlight(std::span<const Program* const> programs, std::span<const ProgramMemory> memory)
      : programs_(programs), memory_(memory) {}

  /// Begins an action in a frame and returns its situation, until the next call. The frame's first
  /// steps may come again: the frame then begins anew. Throws InternalError if the steps do not
  /// follow those before them, or if one of their segment's inputs is still held.
  const Situation& begin(const Action& action, int frame);
  /// Ends the action that was begun last: its frame waits, unless its last step has run.
  void end(const Action& action, int frame);

  /// Begins or ends a hold. Returns the situation if inputs are held from here on, because they
  /// take memory. Throws InternalError if a value is neither an input that is not used yet nor an
  /// output that is in memory, is held twice, or is not held.
  std::optional<Situation> follow(const Hold& hold, int frame);

  /// Forgets all frames, and what is held: a list begins anew.
  void give_up();

  /// Throws InternalError if a value is still held.
  void expect_nothing_held() const;

 private:
  /// A frame between its first step or hold and its last one.
  struct Frame {
    int micro_batch = 0;
    Moment next;  // the first step that has not run
  };
  /// The outputs of the segment that ran last, which are in memory for the caller.
  struct Readable {
    FrameKey key;
    int micro_batch = 0;
    int segment = 0;
  };
  enum class HoldState {
    input,    // is being written
    arrived,  // the input's hold has ended, and its segment has not begun
    output,
  };

  int segment_index(const Action& action) const;
  int step_count(const Action& action) const;
  const ProgramMemory& memory(int program) const { return memory_[static_cast<size_t>(program)]; }
  /// Returns the name of a program's value.
  const std::string& name(int program, int value) const;
  /// Returns whether an action begins a frame, for the first time or anew. It does not if a hold
  /// has begun the frame.
  bool begins_frame(const Action& action, int frame) const;
  /// Ends what the frame has from an earlier run.
  void begin_anew(FrameKey key);
  bool holds_values_of(FrameKey key) const;
  void begin_hold(const Hold& hold, FrameKey key, Value value);
  void end_hold(const Hold& hold, FrameKey key, Value value);
  /// Returns whether an output of the program is in memory, after the segment that made it.
  bool is_in_memory(const Hold& hold, FrameKey key, Value output) const;
  /// Sets situation_ to what waits and what is held, apart from the values that a running frame
  /// has.
  void note_situation(std::optional<FrameKey> running);

  std::span<const Program* const> programs_;
  std::span<const ProgramMemory> memory_;
  std::map<FrameKey, Frame> frames_;  // without the one that runs
  std::map<FrameKey, Frame>::node_type
      running_;  // memory of an entry of `frames_`, to be used again
  std::map<HeldValue, HoldState> held_;
  Situation situation_;  // a member, so that an action takes no memory
  std::optional<Readable> readable_;
};

}  // namespace tessera
