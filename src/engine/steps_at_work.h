#pragma once

#include <compare>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/late_waits.h"

namespace tessera {

/// An outlasting step in one of its program's frames.
struct StepAtWork {
  int outlasting = 0;  ///< index in the list of outlasting steps
  int frame = 0;

  auto operator<=>(const StepAtWork&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// Follows the actions of a rank, and says which outlasting steps may be at work: they have begun,
/// and the compute lane has not awaited them. The plan keeps their memory, and the executor awaits
/// them, by the same rules.
class StepsAtWork {
 public:
  /// Both arguments must outlive this.
  StepsAtWork(std::span<const OutlastingStep> steps, const LateWaits& waits);

  const std::set<StepAtWork>& all() const { return at_work_; }
  const OutlastingStep& step(StepAtWork which) const {
    return steps_[static_cast<size_t>(which.outlasting)];
  }

  /// Returns those that are awaited before an action begins at this step: if it is the first one of
  /// its frame, all that an earlier micro-batch has left at work there. It does not matter whether
  /// the action or a hold begins the frame.
  std::vector<StepAtWork> awaited_before(int program, int frame, int segment_index,
                                         int begin_step) const;
  /// Returns those that the compute lane awaits at the end of a segment, because the caller may
  /// touch their memory from then on (see Joins::at_end). Steps of the segment's earlier parts are
  /// among them.
  std::vector<StepAtWork> awaited_by_end(int program, int frame, int segment_index) const;
  /// Returns those that a step of another lane awaits before it begins, at least.
  std::vector<StepAtWork> awaited_by(int program, int frame, int segment_index, int step,
                                     Lane lane) const;
  /// Notes that a step begins, if it is an outlasting one.
  void begin(int program, int frame, int segment_index, int step);
  /// Notes that a step of the compute lane begins: it may know that steps of its segment are done.
  void end_known_at(int program, int frame, int segment_index, int step);
  /// Notes that the compute lane has awaited a step.
  void end(StepAtWork awaited) { at_work_.erase(awaited); }
  void end_all() { at_work_.clear(); }
  void set_all(std::set<StepAtWork> steps) { at_work_ = std::move(steps); }

 private:
  std::span<const OutlastingStep> steps_;
  const LateWaits& waits_;
  std::map<std::tuple<int, int, int>, int> indices_;  // by program, segment and step
  std::set<StepAtWork> at_work_;
};

}  // namespace tessera
