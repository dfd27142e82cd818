#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/contradictions.h"
#include "config/check_context.h"
#include "config/run_config.h"

namespace tessera {

/// One phase of a run (ZAYA1 §IV-B), with the values that it takes from the sections. A run without
/// [[train.phases]] is one phase. A *course* is one curve of the learning rate: a warm-up and a
/// schedule. A course begins in the first phase, and in each later phase that sets one of the keys
/// of the learning rate. It goes on through the phases that set none.
struct RunPhase {
  int64_t number = 1;  ///< counted from 1
  std::string name;    ///< the configured name, or "phase 2"
  int64_t first_step = 1;
  int64_t last_step = 0;
  /// The run as if it were this phase alone, without [[train.phases]]: context, batches, rope_theta
  /// and sources are those of the phase, [optimizer] and train.steps those of its course.
  RunConfig config;
  int64_t course_begin = 0;  ///< the number of steps before the course
  /// The keys that set the phase's sizes: "train.phases.1.context" or "data.context".
  std::string context_key, micro_batch_key, global_batch_key;

  bool begins_course() const { return course_begin + 1 == first_step; }
  int64_t steps() const { return last_step - first_step + 1; }
  int64_t tokens_of_step() const { return config.train.global_batch * config.data.context; }
  ContextLength context() const { return {context_key, config.data.context, micro_batch_key}; }
  /// Returns whether both phases run the same programs.
  bool same_programs(const RunPhase& other) const;
  /// Returns whether both phases run the same programs, and as often in a step.
  bool same_work(const RunPhase& other) const;
};

/// Returns the phases of a run in their order. A phase given in tokens gets the least number of
/// steps with that many tokens. Never throws: validate() reports problems of the phases.
std::vector<RunPhase> phases_of(const RunConfig& config);

/// Returns the index of the phase that contains a step. Step 0 belongs to the first phase, and
/// steps beyond the end to the last.
size_t phase_at(std::span<const RunPhase> phases, int64_t step);

/// Returns the index of the phase with this name or number. Throws Error that names all phases.
size_t find_phase(std::span<const RunPhase> phases, std::string_view text);

/// Returns the name of a key of a phase: "train.phases.1.context" for the phase of index 1.
std::string phase_key(size_t phase, std::string_view key);

/// Returns the configuration for using weights that were trained for that many steps: the
/// rope_theta of the phase of that step, and the longest context up to it. Without phases it is the
/// unchanged configuration.
RunConfig config_of_weights(const RunConfig& config, int64_t step);

/// Returns the [[data.sources]] that a phase draws from, in the order of that list and with the
/// phase's weights. A phase that names no source draws from all of them. The result is empty if the
/// run has data.directory instead. Unknown names are skipped: check_phase_sources() reports them.
std::vector<SourceConfig> sources_of_phase(const RunConfig& config, size_t phase);

/// Adds the problems of the phases' sources to `found`: names that do not exist, weights that are
/// not valid, sources that no phase draws from.
void check_phase_sources(const RunConfig& config, Contradictions& found);

/// Adds a contradiction for each problem of the phases that does not depend on the mesh.
void check_phases(const RunConfig& config, std::span<const RunPhase> phases, Contradictions& found);

}  // namespace tessera
