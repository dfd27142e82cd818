#include <algorithm>
#include <cctype>
#include <set>

#include "base/error.h"
#include "config/phases.h"

namespace tessera {
namespace {

/// Checks that a name is printable and is not taken for a phase's number (see find_phase()).
void check_phase_name(const std::string& name, const std::string& key, Contradictions& found) {
  const bool is_number =
      std::ranges::all_of(name, [](unsigned char letter) { return std::isdigit(letter) != 0; });
  const bool is_printable = std::ranges::all_of(
      name, [](unsigned char letter) { return letter >= 0x20 && letter != 0x7f; });
  if (!is_number && is_printable) return;
  found.add("{} is \"{}\"; expected a name of one line that does not consist of digits alone", key,
            is_printable ? name : "not printable");
}

/// Checks that a phase is given in steps or in tokens, and not in both.
void check_length(const PhaseConfig& phase, size_t index, Contradictions& found) {
  if (phase.steps && phase.tokens) {
    found.add("{} ({}) and {} ({}) are both given; leave one out", phase_key(index, "steps"),
              *phase.steps, phase_key(index, "tokens"), *phase.tokens);
  } else if (!phase.steps && !phase.tokens) {
    found.add("{} and {} are both left out; give one", phase_key(index, "steps"),
              phase_key(index, "tokens"));
  }
}

/// Returns the key that sets a value: the phase's key if the phase gives it, otherwise the key of
/// [optimizer].
template <typename Field>
std::string rate_key(const std::optional<Field>& given, size_t phase, std::string_view key) {
  return given ? phase_key(phase, key) : fmt::format("optimizer.{}", key);
}

/// Checks the learning-rate course that a phase begins.
void check_course(const RunConfig& run, const RunPhase& phase, Contradictions& found) {
  const auto index = static_cast<size_t>(phase.number - 1);
  if (!phase.begins_course()) return;  // a course is checked with its first phase
  const PhaseConfig& given = run.train.phases[index];
  const OptimizerConfig& course = phase.config.optimizer;
  const bool has_minimum = course.schedule != Schedule::constant;
  if (has_minimum && course.minimum_learning_rate > course.learning_rate) {
    found.add("{} ({}) is larger than {} ({}); lower the one or raise the other",
              rate_key(given.minimum_learning_rate, index, "minimum_learning_rate"),
              course.minimum_learning_rate, rate_key(given.learning_rate, index, "learning_rate"),
              course.learning_rate);
  }
  if (course.warmup_steps > phase.config.train.steps) {
    found.add(
        "{} ({}) is more than the {} steps of its learning rate's course, which begins with "
        "{}; lower the one or raise the other",
        rate_key(given.warmup_steps, index, "warmup_steps"), course.warmup_steps,
        phase.config.train.steps, phase.name);
  }
}

void check_phase_batches(const RunPhase& phase, Contradictions& found) {
  const TrainSection& train = phase.config.train;
  if (train.global_batch % train.micro_batch == 0) return;
  found.add(
      "{} ({}) does not divide {} ({}); choose a global batch that is a multiple of the "
      "micro-batch",
      phase.micro_batch_key, train.micro_batch, phase.global_batch_key, train.global_batch);
}

}  // namespace

void check_phases(const RunConfig& config, std::span<const RunPhase> phases,
                  Contradictions& found) {
  std::set<std::string> names;
  for (size_t i = 0; i < config.train.phases.size(); ++i) {
    const PhaseConfig& given = config.train.phases[i];
    check_length(given, i, found);
    if (!given.name.empty()) check_phase_name(given.name, phase_key(i, "name"), found);
    if (!names.insert(phases[i].name).second) {
      found.add("two of [[train.phases]] are named \"{}\"; give each a name of its own",
                phases[i].name);
    }
  }
  check_phase_sources(config, found);
  for (const RunPhase& phase : phases) {
    check_phase_batches(phase, found);
    check_context(phase.config, phase.context(), found);
    if (phase.steps() > 0) check_course(config, phase, found);
  }
  const int64_t step_sum = phases.back().last_step;
  if (config.train.steps != step_sum && found.none()) {
    found.add(
        "train.steps is {}, but the steps of [[train.phases]] add up to {}; leave train.steps out",
        config.train.steps, step_sum);
  }
}

}  // namespace tessera
