#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "comm/wire_format.h"
#include "ops/collective/flat_steps.h"
#include "ops/collective/quantise.h"

namespace tessera {

/// The sum of flat memory of f32 whose addends are rounded to travel: qgZ of ZeRO++ with integers,
/// and what MegaScale-MoE (section 5) does with bf16. Each step of a sum is a hop. In it each rank
/// rounds the parts of its run that the others are to sum, sends each to its rank, and takes the
/// sum of what it gets, with its own part rounded too, in f32 in the order of the ranks. So a
/// number is rounded once in each hop, however many ranks there are, and the sum is of all ranks.
/// The sum of the last hop is not rounded, so the piece that a rank keeps of it is f32. If all
/// ranks are to have the whole sum (`sends_on`), its slices travel in bf16 too if that is the
/// format.
class WireSum {
 public:
  /// `steps` have no all-reduce.
  WireSum(std::vector<FlatStep> steps, const Wire& wire, bool sends_on);

  const std::vector<FlatStep>& steps() const { return steps_; }
  /// Returns the bytes that a rank sends in each step, on average over the ranks of its group.
  std::vector<WireBytes> wire() const;
  int64_t workspace_bytes(const Target& target) const;
  /// Returns the number of elements of ErrorFeedback::error: those of the first hop's run.
  int64_t feedback_elements() const;
  /// Takes the sum in `memory`, of one dim of f32. `groups` are those of the steps. `feedback` is
  /// for the first hop: the rounding errors of a rank's own addends.
  void run(const Execution& execution, std::span<Communicator* const> groups, const Tensor& memory,
           const std::optional<ErrorFeedback>& feedback = {}) const;
  /// Adds the calls of run(). The listing has the groups of the steps.
  void list_calls(const CallListing& listing) const;

 private:
  /// The messages of a step in a buffer, one after the other, by position in its group.
  struct Slots {
    std::vector<int64_t> bytes;     // of each
    std::vector<int64_t> begins;    // of each, and the end of the last
    std::vector<int64_t> received;  // the bytes of a message to this rank, for each rank
    PieceLayout layout;             // the messages as pieces of the buffer
  };
  Slots slots_of(const FlatStep& step) const;
  bool gathers_rounded() const { return sends_on_ && wire_.format == WireFormat::bf16; }
  void scatter(const Execution& execution, const FlatStep& step, Communicator& group,
               const Tensor& whole, const std::optional<ErrorFeedback>& feedback) const;
  void gather(const Execution& execution, const FlatStep& step, Communicator& group,
              const Tensor& whole) const;
  /// Calls visit(peer, bytes to it, bytes from it) for the messages of a step on devices.
  template <typename Visit>
  void for_messages(const FlatStep& step, const Slots& slots, Visit&& visit) const;

  std::vector<FlatStep> steps_;
  Wire wire_;
  bool sends_on_;
  std::vector<Slots> slots_;  // by step
};

/// The alignment of slices in sums that are rounded, in elements: whole cache lines of bf16.
inline constexpr int64_t kSliceElements = 32;

}  // namespace tessera
