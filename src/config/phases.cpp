// phases_of() walks [[train.phases]] once: it counts their steps and fills in the values that they
// leave out. A course is completed when the next one begins, because only then its end is known.

#include "config/phases.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

bool begins_course(const PhaseConfig& phase) {
  return phase.learning_rate || phase.minimum_learning_rate || phase.schedule || phase.warmup_steps;
}

/// Returns the quotient of whole numbers above zero, rounded up.
int64_t quotient_up(int64_t number, int64_t divisor) {
  return number / divisor + (number % divisor != 0 ? 1 : 0);
}

/// Returns the optimizer's settings for the learning-rate course that a phase begins.
OptimizerConfig course_of(const OptimizerConfig& given, const PhaseConfig& phase, bool is_first) {
  OptimizerConfig course = given;
  course.learning_rate = phase.learning_rate.value_or(given.learning_rate);
  course.minimum_learning_rate = phase.minimum_learning_rate.value_or(given.minimum_learning_rate);
  course.schedule = phase.schedule.value_or(given.schedule);
  course.warmup_steps = phase.warmup_steps.value_or(is_first ? given.warmup_steps : 0);
  return course;
}

/// Returns the run's configuration without its phases. The phases start from it.
RunConfig without_phases(const RunConfig& run) {
  RunConfig result = run;
  result.train.phases = {};
  result.train.stop_after = 0;
  result.given = {};
  return result;
}

/// Returns a phase without its learning-rate course. `shared` is without_phases() of the run.
RunPhase phase_of(const RunConfig& run, const RunConfig& shared, size_t index) {
  const PhaseConfig& given = run.train.phases[index];
  RunPhase phase{
      .number = static_cast<int64_t>(index) + 1,
      .name = given.name.empty() ? fmt::format("phase {}", index + 1) : given.name,
      .config = shared,
      .context_key = given.context ? phase_key(index, "context") : "data.context",
      .micro_batch_key = given.micro_batch ? phase_key(index, "micro_batch") : "train.micro_batch",
      .global_batch_key =
          given.global_batch ? phase_key(index, "global_batch") : "train.global_batch"};
  RunConfig& config = phase.config;
  config.data.context = given.context.value_or(run.data.context);
  config.train.global_batch = given.global_batch.value_or(run.train.global_batch);
  config.train.micro_batch = given.micro_batch.value_or(run.train.micro_batch);
  config.model.rope_theta = given.rope_theta.value_or(run.model.rope_theta);
  config.data.sources = sources_of_phase(run, index);
  return phase;
}

int64_t steps_of(const PhaseConfig& given, const RunPhase& phase) {
  if (given.steps) return *given.steps;
  return given.tokens ? quotient_up(*given.tokens, phase.tokens_of_step()) : 0;
}

/// Sets the start, the length and the optimizer of a course in each of its phases. The length is
/// known only when the course has ended.
void end_course(std::span<RunPhase> course) {
  if (course.empty()) return;
  for (RunPhase& phase : course) {
    phase.course_begin = course.front().first_step - 1;
    phase.config.optimizer = course.front().config.optimizer;
    phase.config.train.steps = course.back().last_step - phase.course_begin;
  }
}

std::string phase_names(std::span<const RunPhase> phases) {
  std::vector<std::string> names;
  for (const RunPhase& phase : phases) names.push_back(phase.name);
  return join(names, ", ");
}

}  // namespace

bool RunPhase::same_programs(const RunPhase& other) const {
  return config.data.context == other.config.data.context &&
         config.train.micro_batch == other.config.train.micro_batch &&
         config.model.rope_theta == other.config.model.rope_theta;
}

bool RunPhase::same_work(const RunPhase& other) const {
  return same_programs(other) && config.train.global_batch == other.config.train.global_batch;
}

std::string phase_key(size_t phase, std::string_view key) {
  return fmt::format("train.phases.{}.{}", phase, key);
}

std::vector<RunPhase> phases_of(const RunConfig& config) {
  const std::vector<PhaseConfig>& given = config.train.phases;
  if (given.empty()) {
    return {{.name = "phase 1",
             .last_step = config.train.steps,
             .config = config,
             .context_key = "data.context",
             .micro_batch_key = "train.micro_batch",
             .global_batch_key = "train.global_batch"}};
  }
  const RunConfig shared = without_phases(config);
  std::vector<RunPhase> phases;
  size_t course_first = 0;  // the index of the phase that began the course
  int64_t steps_before = 0;
  for (size_t i = 0; i < given.size(); ++i) {
    RunPhase phase = phase_of(config, shared, i);
    phase.first_step = steps_before + 1;
    phase.last_step = steps_before += steps_of(given[i], phase);
    if (i == 0 || begins_course(given[i])) {
      end_course(std::span(phases).subspan(course_first));
      course_first = i;
      phase.config.optimizer = course_of(config.optimizer, given[i], i == 0);
    }
    phases.push_back(std::move(phase));
  }
  end_course(std::span(phases).subspan(course_first));
  return phases;
}

size_t phase_at(std::span<const RunPhase> phases, int64_t step) {
  const auto found = std::ranges::lower_bound(phases, step, {}, &RunPhase::last_step);
  return std::min(static_cast<size_t>(found - phases.begin()), phases.size() - 1);
}

size_t find_phase(std::span<const RunPhase> phases, std::string_view text) {
  const auto named = std::ranges::find(phases, text, &RunPhase::name);
  if (named != phases.end()) return static_cast<size_t>(named - phases.begin());
  size_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code == std::errc() && end == text.data() + text.size() && number >= 1 &&
      number <= phases.size()) {
    return number - 1;
  }
  throw Error("there is no phase {}; the run has {}: name one of them or its number, from 1 on",
              text, phase_names(phases));
}

RunConfig config_of_weights(const RunConfig& config, int64_t step) {
  if (config.train.phases.empty()) return config;
  const std::vector<RunPhase> phases = phases_of(config);
  const size_t last = phase_at(phases, step);
  RunConfig result = config;
  result.model.rope_theta = phases[last].config.model.rope_theta;
  result.data.context = 0;
  for (size_t i = 0; i <= last; ++i) {
    result.data.context = std::max(result.data.context, phases[i].config.data.context);
  }
  result.train.phases.clear();
  return result;
}

}  // namespace tessera
