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
inline constexpr std::array<std::string_view, 4> kWordsOf<PlotAxis>{"step", "tokens", "seconds",
                                                                    "flops"};

/// The options of plot_metrics().
struct PlotOptions {
  std::vector<std::string> metrics{"loss"};  ///< one panel each, none twice
  PlotAxis x = PlotAxis::step;
  /// The ends of the x axis, in its unit; for time, in seconds. Without `to`, the axis ends at the
  /// last x. Without `from`, it begins at the first x. But a linear axis begins at zero if the runs
  /// then cover at least half of it.
  std::optional<double> from, to;
  /// A noisy metric is drawn twice: a faint line shows each step, and a strong line means over this
  /// many steps. An even number counts as the next odd one. 1: no means. Absent: a thirtieth of
  /// each run.
  std::optional<int64_t> smooth;
  bool logarithmic_x = false;
  bool logarithmic_y = false;
  std::string title;  ///< if empty, the name of the run, if there is only one
};

/// Returns metrics of one or several runs as an SVG picture, with one panel per metric and one line
/// per run:
///  - A metric that at most half of the steps have is drawn with markers, too. The panel of the
///    loss also has markers for the held-out loss.
///  - Where a phase of a run begins, a line with the phase's name goes through the panels.
///  - Values that are not finite, or not above zero on a logarithmic axis, are gaps.
///
/// Throws Error when no run has a metric, when a run has no numbers for the x axis, or when nothing
/// can be drawn.
std::string plot_metrics(std::span<const RunMetrics> runs, const PlotOptions& options);

}  // namespace tessera
