#pragma once

#include <span>
#include <vector>

#include "data/loader.h"
#include "inference/evaluate.h"
#include "metrics/metrics.h"

namespace tessera {

/// Returns the tokens and epochs that each source has given up to a position in the data.
std::vector<SourceMetrics> source_metrics(const TrainingData& data, const LoaderState& position);

/// Adds held-out losses to a step's metrics: the mean, and the loss of each listed source.
void add_held_out(StepMetrics& metrics, std::span<const SourceEvaluation> evaluations);

}  // namespace tessera
