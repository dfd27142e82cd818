#pragma once

#include "verify/layout_run.h"

namespace tessera {

/// Returns batches of random tokens, made by the loaders of a run: one loader for a single rank,
/// and one for each rank of the trial's mesh. The same targets are left out of all of them.
TrialBatches loader_batches(const LayoutTrial& trial, int steps, int micro_batches);

/// Throws Error, which names both ranks, if ranks that share sequences have different batches.
void require_shared_batches(const Mesh& mesh, const TrialBatches& batches);

}  // namespace tessera
