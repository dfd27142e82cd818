#pragma once

#include <functional>
#include <span>
#include <string>

#include "comm/processes.h"
#include "comm/rank_control.h"
#include "config/run_config.h"
#include "train/run_data.h"

namespace tessera {

/// Something that all ranks of a run must have alike.
struct SameFact {
  std::string what;   ///< "the program"
  std::string value;  ///< compared byte by byte
  /// Says how the value of the first rank, which is its argument, differs from this one's.
  std::function<std::string(const std::string& of_first)> difference;
};

/// Compares facts over the processes of a run. Every rank calls it with the same list. Throws Error
/// on all ranks that names the first fact that differs, and the first rank that has another value
/// than rank 0.
void require_same(std::span<const SameFact> facts, const Processes& processes,
                  const RankControl& control);

/// Throws Error unless all processes of a run are the same program, with the same configuration.
/// A rank that has another would compute another model.
void require_same_start(const RunConfig& config, const Processes& processes,
                        const RankControl& control);
/// The same of the data and the tokenizer, which each rank has opened: a folder of one name may
/// hold other data on another machine.
void require_same_data(const RunData& data, const Processes& processes, const RankControl& control);

}  // namespace tessera
