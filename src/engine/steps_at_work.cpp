#include "engine/steps_at_work.h"

namespace tessera {

StepsAtWork::StepsAtWork(std::span<const OutlastingStep> steps, const LateWaits& waits)
    : steps_(steps), waits_(waits) {
  for (int i = 0; i < std::ssize(steps); ++i) {
    const OutlastingStep& step = steps[static_cast<size_t>(i)];
    indices_[{step.program, step.segment_index, step.step}] = i;
  }
}

std::vector<StepAtWork> StepsAtWork::awaited_before(int program, int frame, int segment_index,
                                                    int begin_step) const {
  std::vector<StepAtWork> result;
  if (segment_index > 0 || begin_step > 0) return result;
  for (const StepAtWork which : at_work_) {
    if (which.frame == frame && step(which).program == program) result.push_back(which);
  }
  return result;
}

std::vector<StepAtWork> StepsAtWork::awaited_by_end(int program, int frame,
                                                    int segment_index) const {
  std::vector<StepAtWork> result;
  for (const StepAtWork which : at_work_) {
    const OutlastingStep& of = step(which);
    if (which.frame == frame && of.program == program && of.segment_index == segment_index &&
        of.known_at != kNeverKnown) {
      result.push_back(which);
    }
  }
  return result;
}

std::vector<StepAtWork> StepsAtWork::awaited_by(int program, int frame, int segment_index, int step,
                                                Lane lane) const {
  std::vector<StepAtWork> result;
  if (at_work_.empty()) return result;
  const auto& waits = waits_[static_cast<size_t>(program)][static_cast<size_t>(segment_index)]
                            [static_cast<size_t>(step)];
  for (const LateWait& wait : waits) {
    if (steps_[static_cast<size_t>(wait.outlasting)].lane == lane) continue;  // runs in order
    for (auto which = at_work_.lower_bound({wait.outlasting, 0});
         which != at_work_.end() && which->outlasting == wait.outlasting; ++which) {
      if (!wait.same_frame || which->frame == frame) result.push_back(*which);
    }
  }
  return result;
}

void StepsAtWork::begin(int program, int frame, int segment_index, int step) {
  const auto found = indices_.find({program, segment_index, step});
  if (found != indices_.end()) at_work_.insert({found->second, frame});
}

void StepsAtWork::end_known_at(int program, int frame, int segment_index, int at) {
  std::erase_if(at_work_, [&](StepAtWork which) {
    const OutlastingStep& known = step(which);
    return which.frame == frame && known.program == program &&
           known.segment_index == segment_index && known.step < at && known.known_at <= at;
  });
}

}  // namespace tessera
