#pragma once

#include <span>
#include <string>

#include "train/metrics.h"

namespace tessera {

/// The loss curve of a run as an SVG picture: every step's loss, the moving mean, the held-out
/// losses, axes with ticks and a caption. Losses that are not finite are left out.
std::string loss_plot(std::span<const StepMetrics> all, const std::string& title);

}  // namespace tessera
