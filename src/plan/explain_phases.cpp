#include "plan/explain_phases.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "data/sources/open_data.h"
#include "state/schedule.h"

namespace tessera {
namespace {

double learning_rate_at(const RunPhase& phase, int64_t step) {
  return learning_rate(phase.config.optimizer, step - phase.course_begin, phase.config.train.steps);
}

/// Returns "0.0006 to 0.0002, cosine": the rates of the first and the last step, and the schedule.
std::string rates_text(const RunPhase& phase) {
  return fmt::format("{:.3g} to {:.3g}, {}", learning_rate_at(phase, phase.first_step),
                     learning_rate_at(phase, phase.last_step),
                     word(phase.config.optimizer.schedule));
}

/// Returns the share of each source of the phase's data: "web 70 %, code 30 %".
std::string shares_text(const RunPhase& phase) {
  const std::vector<SourceConfig>& sources = phase.config.data.sources;
  if (sources.empty()) return phase.config.data.directory;
  double sum = 0;
  for (const SourceConfig& source : sources) sum += source.weight;
  std::vector<std::string> parts;
  for (const SourceConfig& source : sources) {
    parts.push_back(fmt::format("{} {:.3g} %", source_name(source), 100 * source.weight / sum));
  }
  return join(parts, ", ");
}

int64_t tokens_of(const RunPhase& phase) { return phase.steps() * phase.tokens_of_step(); }

}  // namespace

PhaseNeeds phase_needs(const StepPlan& plan) {
  return {.step_flops = plan.flops.useful() * static_cast<double>(plan.micro_batches),
          .memory_bytes = plan.memory.arena_bytes};
}

std::vector<PhaseAccount> phase_accounts(
    const RunConfig& config, const std::function<PhaseNeeds(const RunConfig&)>& needs_of) {
  std::vector<PhaseAccount> accounts;
  for (RunPhase& phase : phases_of(config)) {
    const auto known = std::ranges::find_if(
        accounts, [&](const PhaseAccount& account) { return account.phase.same_work(phase); });
    PhaseNeeds needs = known == accounts.end() ? needs_of(phase.config) : known->needs;
    accounts.push_back({std::move(phase), std::move(needs)});
  }
  return accounts;
}

std::string phases_table(std::span<const PhaseAccount> accounts, int64_t run_bytes) {
  const bool timed = std::ranges::any_of(accounts, [](const PhaseAccount& account) {
    return account.needs.least_seconds.has_value();
  });
  std::vector<std::string> columns{"phase",   "steps",        "tokens", "context",
                                   "batch",   "micro-batch",  "theta",  "learning rate",
                                   "sources", "FLOPs a step", "memory"};
  if (timed) columns.insert(columns.end(), {"least time a step", "of the phase"});
  Table table(columns);
  for (const PhaseAccount& account : accounts) {
    const RunPhase& phase = account.phase;
    std::vector<std::string> cells{phase.name,
                                   fmt::format("{} to {}", phase.first_step, phase.last_step),
                                   format_count(static_cast<double>(tokens_of(phase))),
                                   fmt::format("{}", phase.config.data.context),
                                   fmt::format("{}", phase.config.train.global_batch),
                                   fmt::format("{}", phase.config.train.micro_batch),
                                   fmt::format("{}", phase.config.model.rope_theta),
                                   rates_text(phase),
                                   shares_text(phase),
                                   format_count(account.needs.step_flops),
                                   format_bytes(account.needs.memory_bytes)};
    if (timed) {
      const double seconds = account.needs.least_seconds.value_or(0);
      cells.push_back(format_seconds(seconds));
      cells.push_back(format_duration(seconds * static_cast<double>(phase.steps())));
    }
    table.add(cells);
  }
  return table.text() +
         fmt::format("the run reserves {} for all phases\n", format_bytes(run_bytes));
}

nlohmann::ordered_json phases_json(std::span<const PhaseAccount> accounts) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const PhaseAccount& account : accounts) {
    const RunPhase& phase = account.phase;
    nlohmann::ordered_json sources = nlohmann::ordered_json::object();
    for (const SourceConfig& source : phase.config.data.sources) {
      sources[source_name(source)] = source.weight;
    }
    json.push_back({{"name", phase.name},
                    {"first_step", phase.first_step},
                    {"last_step", phase.last_step},
                    {"tokens", tokens_of(phase)},
                    {"context", phase.config.data.context},
                    {"global_batch", phase.config.train.global_batch},
                    {"micro_batch", phase.config.train.micro_batch},
                    {"rope_theta", phase.config.model.rope_theta},
                    {"schedule", word(phase.config.optimizer.schedule)},
                    {"first_learning_rate", learning_rate_at(phase, phase.first_step)},
                    {"last_learning_rate", learning_rate_at(phase, phase.last_step)},
                    {"sources", sources},
                    {"flops_per_step", account.needs.step_flops},
                    {"peak_bytes", account.needs.memory_bytes}});
    if (account.needs.least_seconds) {
      json.back()["least_seconds_per_step"] = *account.needs.least_seconds;
    }
  }
  return json;
}

}  // namespace tessera
