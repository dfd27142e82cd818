#include "train/same_training.h"

#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "config/differences.h"
#include "config/mesh_of.h"
#include "config/phases.h"
#include "data/sources/open_data.h"

// A resumed run is compared with the run of its checkpoint in three ways: the keys of the
// configuration one by one, then the phases that are finished or begun, then the token sets.

namespace tessera {
namespace {

/// Returns whether a key may change when a run is resumed. The model, the order of the data and the
/// batches may not: a change would silently make it another run. Nor may keys of the optimizer on
/// which the saved states depend. The micro-batch may change: where its size counts,
/// require_same_token_sets() compares the sets that follow from it.
bool may_change(std::string_view key) {
  for (const std::string_view fixed :
       {"model.", "data.context", "data.document_mask", "optimizer.name", "train.precision",
        "optimizer.muon_split", "train.global_batch", "train.seed"}) {
    if (key.starts_with(fixed)) return false;
  }
  return true;
}

/// Returns whether a key is a path of files. Files may move, because their contents are compared.
bool is_path(std::string_view key) {
  return key == "data.directory" || key == "data.tokenizer" || key.starts_with("data.sources");
}

/// Throws Error if a key that must stay has changed. Logs the keys that change from here on.
void require_same_keys(const RunConfig& saved, const RunConfig& config, const std::string& origin,
                       const Logger& logger) {
  for (const auto& [key, before, given] : differences(saved, config)) {
    // Each block is a matrix of its own, and the number of ranks decides how many blocks there are.
    const bool changes_blocks = key == "parallel.tensor" &&
                                config.optimizer.name == OptimizerName::muon &&
                                config.optimizer.muon_split == MuonSplit::blocks;
    if (!may_change(key) || changes_blocks) {
      throw Error(
          "{} was saved with {} = {}, the configuration says {}; resume with the same, or "
          "start another run",
          origin, key, before, given);
    }
    if (key == "checkpoint.initial") {
      logger.warn(
          "{} = {} changes nothing: the run has weights of its own since it began with {}, which "
          "it goes on recording",
          key, given, before);
    } else if (is_path(key)) {
      logger.info("{} changes from {} to {}", key, before, given);
    } else if (key != "run.directory") {
      logger.warn("{} changes from {} to {}", key, before, given);
    }
  }
}

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
std::vector<PhaseFact> step_facts(const RunPhase& phase) {
  const RunConfig& config = phase.config;
  return {{"context", fmt::format("{}", config.data.context)},
          {"global_batch", fmt::format("{}", config.train.global_batch)},
          {"rope_theta", fmt::format("{}", config.model.rope_theta)}};
}

/// Returns the facts that must stay in a phase that is over.
std::vector<PhaseFact> finished_phase_facts(const RunPhase& phase) {
  const OptimizerConfig& optimizer = phase.config.optimizer;
  std::vector<PhaseFact> facts = step_facts(phase);
  facts.push_back({"steps", fmt::format("{}", phase.steps())});
  facts.push_back({"sources", sources_text(phase)});
  facts.push_back({"learning_rate", fmt::format("{}", optimizer.learning_rate)});
  facts.push_back({"minimum_learning_rate", fmt::format("{}", optimizer.minimum_learning_rate)});
  facts.push_back({"schedule", std::string(word(optimizer.schedule))});
  facts.push_back({"warmup_steps", fmt::format("{}", optimizer.warmup_steps)});
  return facts;
}

/// Throws Error if a phase in which the run has trained `step` steps has changed.
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
    const bool finished = i < current;
    const auto facts = finished ? finished_phase_facts(before[i]) : step_facts(before[i]);
    const auto given = finished ? finished_phase_facts(now[i]) : step_facts(now[i]);
    for (size_t fact = 0; fact < facts.size(); ++fact) {
      if (facts[fact].value == given[fact].value) continue;
      throw Error(
          "{} was saved at step {} with {} = {}, the configuration says {}; resume with the same, "
          "or start another run: only what is not trained yet may change",
          origin, step, phase_key(i, facts[fact].key), facts[fact].value, given[fact].value);
    }
    if (finished || now[i].last_step >= step || i + 1 == now.size()) continue;
    throw Error(
        "{} was saved at step {}, and the configuration ends {} ({}) after step {}; let it end "
        "there or later, or start another run",
        origin, step, now[i].name, phase_key(i, "steps"), now[i].last_step);
  }
}

// The state values that record the token sets.
constexpr const char* kBalanceTokens = "balance.tokens";
constexpr const char* kCapacityTokens = "capacity.tokens";
constexpr const char* kBiasTokens = "balance_biases.tokens";

/// The sizes of a run's token sets (see put_token_sets()). A size is 0 if there is no such set.
struct TokenSets {
  int64_t balance = 0;   // tokens over which a balance loss is computed
  int64_t capacity = 0;  // tokens that share the capacity of an expert
  int64_t biases = 0;    // tokens that a controller of router biases counts per change
};

TokenSets token_sets(const RunConfig& config, const Mesh& mesh) {
  if (!config.model.mixture()) return {};
  const int64_t data_rank_tokens = config.train.micro_batch * config.data.context;
  const int64_t all_tokens = data_rank_tokens * data_ranks(mesh);
  const int64_t rank_tokens =
      data_rank_tokens / (mesh.size(mesh.tensor()) * mesh.size(mesh.context()));
  const bool per_rank = config.parallel.capacity_tokens == TokenSet::rank;
  // With global_batch each micro-batch of all ranks sees the step so far, in parts of its size.
  const int64_t balance =
      config.model.balance_tokens == BalanceTokens::rank ? data_rank_tokens : all_tokens;
  return {.balance = config.model.balance_coefficient > 0 ? balance : 0,
          .capacity = config.model.capacity_factor > 0 ? (per_rank ? rank_tokens : all_tokens) : 0,
          .biases = config.model.balance_biases == BiasBalancing::controller ? all_tokens : 0};
}

void require_same_set(const CheckpointState& saved, const char* name, int64_t now, const char* what,
                      const std::string& text_of_now, const std::string& origin) {
  if (!saved.values.contains(name)) return;
  const int64_t before = saved.integer(name);
  if (before == now) return;
  throw Error(
      "{} was saved by a run that takes {} over {} tokens at a time, and here it would be {} ({}), "
      "which is another training; choose --ranks, [parallel] and train.micro_batch (or the "
      "phase's own micro_batch) such that it stays, or start another run",
      origin, what, before, now, text_of_now);
}

void require_same_token_sets(const CheckpointState& saved, const RunConfig& config,
                             const Mesh& mesh, const std::string& origin) {
  const TokenSets now = token_sets(config, mesh);
  const std::string numbers =
      fmt::format("micro-batches of {} sequences of {} tokens, {} of {}", config.train.micro_batch,
                  config.data.context, data_ranks_text(data_ranks(mesh)), mesh.ranks());
  require_same_set(saved, kBalanceTokens, now.balance, "its balance loss", numbers, origin);
  require_same_set(saved, kCapacityTokens, now.capacity, "the capacity of its experts", numbers,
                   origin);
  require_same_set(saved, kBiasTokens, now.biases,
                   "a step of the controller of its balancing biases", numbers, origin);
}

}  // namespace

void require_same_training(const CheckpointState& state, const RunConfig& saved,
                           const RunConfig& config, const Mesh& mesh, const std::string& origin,
                           const Logger& logger) {
  require_same_keys(saved, config, origin, logger);
  require_same_phases(saved, config, state.step, origin);
  const std::vector<RunPhase> phases = phases_of(config);
  require_same_token_sets(state, phases[phase_at(phases, state.step)].config, mesh, origin);
}

void put_token_sets(CheckpointState& state, const RunConfig& config, const Mesh& mesh) {
  const TokenSets sets = token_sets(config, mesh);
  state.values[kBalanceTokens] = sets.balance;
  state.values[kCapacityTokens] = sets.capacity;
  if (sets.biases > 0) state.values[kBiasTokens] = sets.biases;
}

}  // namespace tessera
