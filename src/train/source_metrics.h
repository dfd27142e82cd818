#pragma once

#include <span>
#include <vector>

#include "data/loader.h"
#include "inference/evaluate.h"
#include "metrics/metrics.h"

namespace tessera {

/// Returns what each source of a run's data has given up to a position in it.
std::vector<SourceMetrics> source_metrics(const TrainingData& data, const LoaderState& position);

/// Adds the held-out losses to a step's metrics: the mean, and that of each source in them.
void add_held_out(StepMetrics& metrics, std::span<const SourceEvaluation> evaluations);

}  // namespace tessera
