#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/stage_list.h"
#include "program/program.h"

namespace tessera {

/// A sum of main gradients that may begin before the update does: it reads nothing but what is kept
/// between actions. Its calls are of ranks of one stage, all of which have it.
struct EarlySum {
  int step = 0;  ///< of the update
  /// The last step of the list that changes what the sum reads: the index of an entry, and a step
  /// of its segment.
  int entry = 0;
  int entry_step = 0;
};

/// Returns the sums of an update program that may begin early, in the order in which the list of a
/// stage completes what they read. `programs` is the list of all programs; `list` runs segments as
/// a whole.
std::vector<EarlySum> find_early_sums(std::span<const Program* const> programs,
                                      const Program& update, const StageList& list);

/// Puts these sums first in the update, in their order.
void put_first(Program& update, std::span<const EarlySum> sums);

/// Makes a list begin the first `count` sums that the update has first as soon as they may begin:
/// between two parts of the backward passes of the last micro-batch. Passes may take turns already.
/// Sums that may begin only at the end of the list are left to the update. `update_number` is the
/// update's index in `programs`.
void begin_sums(StageList& list, std::span<const Program* const> programs, int update_number,
                int count);

}  // namespace tessera
