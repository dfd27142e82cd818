#include "train/same_phases.h"

#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "config/phases.h"
#include "data/sources/open_data.h"

namespace tessera {
namespace {

/// A key of a phase and its value, which an error shows.
struct PhaseFact {
  std::string key;
  std::string value;
};

std::string sources_text(const RunPhase& phase) {
  std::vector<std::string> parts;
  for (const SourceConfig& source : phase.config.data.sources) {
    parts.push_back(fmt::format("{}={}", source_name(source), source.weight));
  }
  return "[" + join(parts, ", ") + "]";
}

/// Returns the facts that decide what a step of a phase computes.
std::vector<PhaseFact> facts_of_step(const RunPhase& phase) {
  const RunConfig& config = phase.config;
  return {{"context", fmt::format("{}", config.data.context)},
          {"global_batch", fmt::format("{}", config.train.global_batch)},
          {"rope_theta", fmt::format("{}", config.model.rope_theta)}};
}

/// Returns the facts that must stay in a phase that is over.
std::vector<PhaseFact> facts_of_all(const RunPhase& phase) {
  const OptimizerConfig& optimizer = phase.config.optimizer;
  std::vector<PhaseFact> facts = facts_of_step(phase);
  facts.push_back({"steps", fmt::format("{}", phase.steps())});
  facts.push_back({"sources", sources_text(phase)});
  facts.push_back({"learning_rate", fmt::format("{}", optimizer.learning_rate)});
  facts.push_back({"minimum_learning_rate", fmt::format("{}", optimizer.minimum_learning_rate)});
  facts.push_back({"schedule", std::string(word(optimizer.schedule))});
  facts.push_back({"warmup_steps", fmt::format("{}", optimizer.warmup_steps)});
  return facts;
}

}  // namespace

void require_same_phases(const RunConfig& saved, const RunConfig& config, int64_t step,
                         const std::string& origin) {
  const std::vector<RunPhase> before = phases_of(saved);
  const std::vector<RunPhase> now = phases_of(config);
  const size_t current = phase_at(before, step);
  for (size_t i = 0; i <= current; ++i) {
    if (i >= now.size()) {
      throw Error(
          "{} was saved in the phase {} of the run, the configuration has {} phases; resume with "
          "all that the run has trained in, or start another run",
          origin, i + 1, now.size());
    }
    const bool over = i < current;
    const auto facts = over ? facts_of_all(before[i]) : facts_of_step(before[i]);
    const auto given = over ? facts_of_all(now[i]) : facts_of_step(now[i]);
    for (size_t fact = 0; fact < facts.size(); ++fact) {
      if (facts[fact].value == given[fact].value) continue;
      throw Error(
          "{} was saved at step {} with {} = {}, the configuration says {}; resume with the same, "
          "or start another run: only what is not trained yet may change",
          origin, step, phase_key(i, facts[fact].key), facts[fact].value, given[fact].value);
    }
    if (over || now[i].last_step >= step || i + 1 == now.size()) continue;
    throw Error(
        "{} was saved at step {}, and the configuration ends {} ({}) after step {}; let it end "
        "there "
        "or later, or start another run",
        origin, step, now[i].name, phase_key(i, "steps"), now[i].last_step);
  }
}

}  // namespace tessera
