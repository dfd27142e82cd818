#pragma once

#include <functional>
#include <span>
#include <string>

#include "comm/processes.h"
#include "comm/rank_control.h"
#include "config/run_config.h"
#include "train/run_data.h"

namespace tessera {

/// A value that must be the same on all ranks of a run.
struct SameFact {
  std::string what;   ///< "the program"
  std::string value;  ///< compared byte by byte
  /// Returns how the value of the first rank, `first_value`, differs from this rank's, in words.
  /// Empty for values that people cannot read.
  std::function<std::string(const std::string& first_value)> difference = {};
};

/// Returns a fact whose value people can read.
SameFact readable_fact(std::string what, const std::string& value);

/// Throws Error on all ranks if a fact differs between processes. The error names the first such
/// fact, and the first rank whose value is not rank 0's. All ranks must list the same facts.
void require_same(std::span<const SameFact> facts, const Processes& processes,
                  const RankControl& control);

/// Throws Error unless all processes run the same program with the same configuration. A rank with
/// another one would compute another model.
void require_same_start(const RunConfig& config, const Processes& processes,
                        const RankControl& control);
/// Throws Error unless all processes have opened the same data and tokenizer: the same path may
/// hold other data on another machine.
void require_same_data(const RunData& data, const Processes& processes, const RankControl& control);

}  // namespace tessera
