#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "plan/blocks/measurement_report.h"

namespace tessera {

// Measurements of blocks as SVG documents.

/// Draws the seconds of each run: one line for the forward pass and one for both passes.
std::string mixture_picture(const MixtureBlockSizes& sizes, const BlockMeasurement& measurement,
                            const MeasuredOn& on);

/// Draws the rates of attention over the sequence length, in ascending order: one line for the
/// forward pass and one for both passes. `sizes` are those that all lengths have in common.
std::string attention_picture(const AttentionBlockSizes& sizes,
                              std::span<const std::pair<int64_t, PassRates>> rates,
                              const MeasuredOn& on);

}  // namespace tessera
