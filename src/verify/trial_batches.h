#pragma once

#include <cstdint>

#include "verify/layout_run.h"

namespace tessera {

/// Returns micro-batches of random tokens for some steps. Some targets are left out, and documents
/// begin at random positions. They depend on the arguments alone.
StepBatches random_batches(const ProgramSize& size, int64_t vocabulary_size, int steps,
                           int micro_batches, uint64_t seed);

/// Returns the batches that the run's loaders make of random tokens: a loader for one rank, and one
/// for each rank of the trial's mesh. Some targets are left out of all alike.
TrialBatches loader_batches(const LayoutTrial& trial, int steps, int micro_batches);

/// Throws Error, with its number, if a rank of a mesh has other batches than another one that
/// shares its sequences.
void require_shared_batches(const Mesh& mesh, const TrialBatches& batches);

}  // namespace tessera
