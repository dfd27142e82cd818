#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/plot/run_metrics.h"

namespace tessera {

/// What can stand at the x axis. `seconds` is the time spent in steps since the run's start.
enum class PlotAxis { step, tokens, seconds, flops };

/// What users call them, in the order of PlotAxis.
inline constexpr std::array<std::string_view, 4> kPlotAxes{"step", "tokens", "seconds", "flops"};

/// How runs are drawn.
struct PlotOptions {
  std::vector<std::string> metrics{"loss"};  ///< one panel each, none twice
  PlotAxis x = PlotAxis::step;
  /// The part of the x axis that is shown, in its unit; seconds in the case of time. Absent: from
  /// zero, or from the first x where the runs cover less than half of that, to the last x.
  std::optional<double> from, to;
  /// Steps in a mean of the strong lines; 1: no smoothing. Absent: a thirtieth of each run.
  std::optional<int64_t> smooth;
  bool logarithmic_x = false;
  bool logarithmic_y = false;
  std::string title;  ///< the run's name where it is empty and there is one run
};

/// Draws metrics of one or several runs as an SVG picture: a panel a metric, a line a run. A metric
/// that changes by chance from step to step is smoothed, its steps faint behind; one that only some
/// steps have is drawn with markers, and the held-out loss stands in the panel of the loss as well.
/// Values that are not finite, or not above zero on a logarithmic axis, are gaps. Throws Error when
/// no run has a metric, when a run has no numbers for the x axis, or when nothing can be drawn.
std::string plot_metrics(std::span<const RunMetrics> runs, const PlotOptions& options);

}  // namespace tessera
