#include <algorithm>

#include <fmt/format.h>

#include "config/effects.h"

namespace tessera {
namespace {

// The conditions of the keys that set a course of the learning rate. A key of [optimizer] has an
// effect if it has one in at least one of the courses that read it.

bool is_constant(const RunPhase& course) {
  return course.config.optimizer.schedule == Schedule::constant;
}

/// Returns why the schedule applies to no step: the warm-up takes all. Empty if it leaves some.
std::string why_no_decay(const RunPhase& course) {
  const OptimizerConfig& optimizer = course.config.optimizer;
  if (optimizer.warmup_steps < course.config.train.steps) return "";
  return fmt::format("the warm-up takes all {} steps", course.config.train.steps);
}

std::string why_no_peak(const RunPhase& course) {
  if (course.config.train.steps > 1 || course.config.optimizer.warmup_steps > 0) return "";
  if (is_constant(course)) return "";
  return "the schedule of one step ends at it, with the minimum learning rate";
}

std::string why_no_minimum(const RunPhase& course) {
  return is_constant(course) ? "the schedule is \"constant\"" : why_no_decay(course);
}

/// Returns why a key of [optimizer] has no effect. Each course either has its own value, from the
/// phase that begins it, or does not read the key.
template <typename Field>
std::string why_none_in_courses(const Circumstances& here, std::optional<Field> PhaseConfig::*field,
                                std::string (*why_none_in)(const RunPhase& course)) {
  const std::vector<PhaseConfig>& given = here.config.train.phases;
  std::string reason = "each of [[train.phases]] that begins a course has its own";
  for (size_t i = 0; i < here.phases.size(); ++i) {
    const RunPhase& phase = here.phases[i];
    if (!phase.begins_course() || (!given.empty() && (given[i].*field).has_value())) continue;
    reason = why_none_in(phase);
    if (reason.empty()) return reason;
  }
  return reason;
}

}  // namespace

namespace effects {

std::string peak_of_a_course(const Circumstances& here) {
  return why_none_in_courses(here, &PhaseConfig::learning_rate, why_no_peak);
}

std::string minimum_of_a_course(const Circumstances& here) {
  return why_none_in_courses(here, &PhaseConfig::minimum_learning_rate, why_no_minimum);
}

std::string schedule_of_a_course(const Circumstances& here) {
  return why_none_in_courses(here, &PhaseConfig::schedule, why_no_decay);
}

std::string warmup_of_a_course(const Circumstances& here) {
  const std::vector<PhaseConfig>& phases = here.config.train.phases;
  const bool given = !phases.empty() && phases.front().warmup_steps.has_value();
  return given ? "the first of [[train.phases]] has its own, and others warm up only if they say so"
               : "";
}

std::string peak_of_this_phase(const Circumstances& here) {
  return why_no_peak(here.phases[here.table]);
}

std::string minimum_of_this_phase(const Circumstances& here) {
  return why_no_minimum(here.phases[here.table]);
}

std::string schedule_of_this_phase(const Circumstances& here) {
  return why_no_decay(here.phases[here.table]);
}

}  // namespace effects

bool learns_nothing(const RunPhase& phase) {
  return phase.begins_course() && !why_no_peak(phase).empty() &&
         phase.config.optimizer.minimum_learning_rate == 0;
}

}  // namespace tessera
