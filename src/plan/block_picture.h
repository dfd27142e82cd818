#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "plan/measurement_report.h"

namespace tessera {

// Measurements of blocks as SVG documents.

/// The seconds of each run, a line for the forward pass and one for both passes.
std::string mixture_picture(const MixtureBlockSizes& sizes, const BlockMeasurement& measurement,
                            const MeasuredOn& on);

/// The rates of attention by the length of its sequence, which grows, a line for the forward pass
/// and one for both passes. `sizes` are those that all lengths have in common.
std::string attention_picture(const AttentionBlockSizes& sizes,
                              std::span<const std::pair<int64_t, PassRates>> rates,
                              const MeasuredOn& on);

}  // namespace tessera
