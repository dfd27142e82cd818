#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "verify/layout_run.h"

namespace tessera {

/// The number of micro-batches in a step: enough to see that gradients are added up.
inline constexpr int kTrialMicroBatches = 2;

/// The part of a run's micro-batch that a verification computes.
struct TrialSize {
  int64_t micro_batch = 0;  ///< the number of sequences of one data rank
  int64_t context = 0;      ///< the number of positions of a sequence
};

/// Returns the sizes to choose from, the configured one first. The micro-batch is halved down to 4
/// sequences, then the context down to 64 positions or the fewest that divide over the mesh, then
/// the micro-batch down to 2. A `context` that is not 0 is the user's, and is kept. Throws Error if
/// the configuration could not have this context.
std::vector<TrialSize> trial_sizes(const RunConfig& config, const Mesh& mesh, int64_t context);

/// Returns the trial of a resolved configuration. Throws Error if the run is for a device.
LayoutTrial trial_of(const RunConfig& config, const Mesh& mesh, const TrialSize& size);

/// The default limit on the FLOPs of all steps on one rank: a verification then takes minutes.
inline constexpr double kWorkLimit = 1e11;

/// Returns the FLOPs of all steps on one rank.
double verify_work(const LayoutTrial& trial, int steps);

/// Returns the index of the first size that takes at most `limit` FLOPs; the last one if none does.
size_t first_within_work(const RunConfig& config, const Mesh& mesh,
                         const std::vector<TrialSize>& sizes, int steps, double limit);

/// Returns the index of the first size, at `from` or later, whose verification fits in a memory;
/// the last index if none does. If the ranks are processes, the memory is for `local_ranks`.
size_t first_that_fits(const RunConfig& config, const Mesh& mesh,
                       const std::vector<TrialSize>& sizes, int steps, int64_t memory,
                       size_t from = 0, const std::optional<std::vector<int>>& local_ranks = {});

/// Returns what a size leaves out of the configured one and why, in words; empty if it leaves out
/// nothing. The sizes before `within` take too much work, and those from there up to `chosen` do
/// not fit in memory. The text says so if even the chosen size takes more than `limit` FLOPs.
std::string cut_text(const RunConfig& config, const Mesh& mesh, const std::vector<TrialSize>& sizes,
                     size_t within, size_t chosen, int steps, double limit = kWorkLimit);

}  // namespace tessera
