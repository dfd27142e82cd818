#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/words.h"
#include "metrics/plot/run_metrics.h"

namespace tessera {

/// The numbers on the x axis. `seconds` is the time spent in steps since the run's start.
enum class PlotAxis { step, tokens, seconds, flops };
template <>
inline constexpr std::array<std::string_view, 4> kWords<PlotAxis>{"step", "tokens", "seconds",
                                                                  "flops"};

/// The options of plot_metrics().
struct PlotOptions {
  std::vector<std::string> metrics{"loss"};  ///< one panel each, none twice
  PlotAxis x = PlotAxis::step;
  /// The part of the x axis that is shown, in the axis's unit; for time, in seconds. If `to` is
  /// absent, it is the last x. If `from` is absent, it is zero, or the first x if the runs would
  /// cover less than half of an axis from zero.
  std::optional<double> from, to;
  /// The number of steps in each mean of the strong lines; 1: no smoothing. Absent: a thirtieth of
  /// each run.
  std::optional<int64_t> smooth;
  bool logarithmic_x = false;
  bool logarithmic_y = false;
  std::string title;  ///< if empty, the name of the run, if there is only one
};

/// Returns metrics of one or several runs as an SVG picture: one panel per metric, one line per
/// run. A metric that changes by chance from step to step is smoothed, with its steps drawn faintly
/// behind. A metric that only some steps have is drawn with markers. The held-out loss is also in
/// the panel of the loss. At the beginning of each phase of a run, a line with its name goes
/// through the panels. Values that are not finite, or not above zero on a logarithmic axis, are
/// gaps. Throws Error when no run has a metric, when a run has no numbers for the x axis, or when
/// nothing can be drawn.
std::string plot_metrics(std::span<const RunMetrics> runs, const PlotOptions& options);

}  // namespace tessera
