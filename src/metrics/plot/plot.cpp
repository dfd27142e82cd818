// A picture is made from the outside in: the x values of each run, then the range and the unit of
// the x axis that all panels share, then one panel per metric with its lines, and last the
// borders of the phases. draw() (plot/chart.h) turns the finished Chart into SVG.

#include "metrics/plot/plot.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "metrics/metrics.h"
#include "plot/chart.h"
#include "plot/style.h"

namespace tessera {
namespace {

constexpr double kGap = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kLoss = "loss";
constexpr const char* kHeldOutLoss = "held_out_loss";

/// The label and unit of the x axis.
struct AxisUnit {
  std::string label;
  double scale = 1;  ///< the size of the unit: 60 for minutes, if the runs' numbers are seconds
};

/// A run with its x values.
struct Run {
  const RunMetrics* metrics;
  size_t number;          ///< in the order of the command
  std::vector<double> x;  ///< by row
};

/// Returns `value`, or a gap if it cannot be drawn on the axis. A very large number becomes a gap,
/// and a very small one zero, so that differences and quotients of the returned values are finite.
double drawable(double value, bool logarithmic) {
  const double magnitude = std::abs(value);
  if (!(magnitude < 1e100) || (logarithmic && !(value > 1e-100))) return kGap;
  return magnitude < 1e-100 ? 0 : value;
}

/// Returns the x value of each row. Throws Error if one is missing or below the one before.
std::vector<double> x_values(const RunMetrics& run, PlotAxis axis) {
  const std::string name(word(axis));
  std::vector<double> result;
  double previous = 0;
  for (size_t row = 0; row < run.steps().size(); ++row) {
    double value = static_cast<double>(run.steps()[row]);
    if (axis != PlotAxis::step) {
      const double found = run.at(name, row).value_or(kGap);
      value = axis == PlotAxis::seconds ? previous + found : found;
      if (!std::isfinite(value) || value < previous) {
        throw Error("{}: step {} has no usable number of {} for the x axis; choose another --x",
                    run.file().string(), run.steps()[row], name);
      }
      previous = value;
    }
    result.push_back(value);
  }
  return result;
}

/// Returns the unit for an axis up to `high`. Durations get a unit in which they have few digits.
AxisUnit axis_unit(PlotAxis axis, double high) {
  switch (axis) {
    case PlotAxis::step:
      return {"step"};
    case PlotAxis::tokens:
      return {"tokens"};
    case PlotAxis::flops:
      return {"useful FLOPs"};
    case PlotAxis::seconds:
      break;
  }
  if (high < 300) return {"time in steps (s)"};
  if (high < 3 * 3600) return {"time in steps (min)", 60};
  if (high < 3 * 86400) return {"time in steps (h)", 3600};
  return {"time in steps (d)", 86400};
}

/// Returns the range of the x axis for all runs, in the unit of the runs' numbers.
Range x_range(std::span<const Run> runs, const PlotOptions& options) {
  double low = std::numeric_limits<double>::max();
  double high = std::numeric_limits<double>::lowest();
  for (const Run& run : runs) {
    for (const double x : run.x) {
      if (std::isnan(drawable(x, options.logarithmic_x))) continue;
      low = std::min(low, x);
      high = std::max(high, x);
    }
  }
  if (low == high && !options.from && !options.to) {
    // A single point is drawn in the middle of an axis of some width.
    if (options.logarithmic_x) return {low / 2, high * 2};
    const double margin = low == 0 ? 1 : std::abs(low) / 2;
    return {low - margin, high + margin};
  }
  // The axis begins at zero if the runs then cover at least half of it. It also begins at zero if
  // the range of the runs is so narrow that linear_ticks() could not tell its ends apart.
  const double width = high - low;
  const bool begins_at_low = 2 * width < high && width > 1e-6 * high;
  if (!options.logarithmic_x && !begins_at_low) low = std::min(low, 0.0);
  const Range range{options.from.value_or(low), options.to.value_or(high)};
  if (options.logarithmic_x && !(range.low > 0)) {
    throw Error("a logarithmic x axis begins above zero, not at {}", range.low);
  }
  const double largest = std::max(std::abs(range.low), std::abs(range.high));
  if (!(range.high - range.low > 1e-9 * largest)) {
    throw Error(
        "the x axis would go from {} to {}; give a --range that holds some steps (the runs "
        "go from {} to {})",
        range.low, range.high, low, high);
  }
  return range;
}

/// Returns the metric of that name from the table of known metrics, or null.
const Metric* find_metric(std::string_view name) {
  for (const Metric& metric : all_metrics()) {
    if (metric.name == name) return &metric;
  }
  return nullptr;
}

/// Throws Error unless one of the runs has the metric.
void require_known(std::span<const RunMetrics> runs, const std::string& metric) {
  std::vector<std::string> known;
  for (const RunMetrics& run : runs) {
    if (run.has(metric)) return;
    for (const std::string& name : run.metrics()) {
      if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
    }
  }
  const std::string nearest = nearest_name(metric, known);
  throw Error("no run has the metric '{}'{}; there are {}", metric,
              nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest),
              join(known, ", "));
}

/// Returns a point for each step that has the metric.
std::vector<Point> samples(const Run& run, const std::string& metric, const AxisUnit& unit,
                           bool logarithmic_y) {
  std::vector<Point> points;
  for (size_t row = 0; row < run.x.size(); ++row) {
    if (const auto value = run.metrics->at(metric, row)) {
      points.push_back({run.x[row] / unit.scale, drawable(*value, logarithmic_y)});
    }
  }
  return points;
}

/// Returns whether only some steps have the metric, such as an occasional evaluation.
bool is_occasional(const RunMetrics& run, const std::string& metric) {
  return 2 * run.count(metric) <= run.steps().size() && run.steps().size() > 1;
}

/// Returns the number of steps in a mean. The number is odd, so that a mean has a middle step.
int64_t smoothing_window(const RunMetrics& run, const PlotOptions& options) {
  const auto steps = static_cast<int64_t>(run.steps().size());
  return std::max<int64_t>(options.smooth.value_or(steps / 30), 1) / 2 * 2 + 1;
}

/// Writes panels and collects the notes about them.
class PanelWriter {
 public:
  PanelWriter(const PlotOptions& options, const AxisUnit& unit) : options_(options), unit_(unit) {}

  Panel panel(std::span<const Run> runs, const std::string& metric) {
    const Metric* known = find_metric(metric);
    Panel panel{.label = known != nullptr ? std::string(known->label) : metric};
    const bool noisy = known == nullptr || known->noisy;
    for (const Run& run : runs) {
      if (run.metrics->has(metric)) panel.curves.push_back(curve(run, metric, noisy));
    }
    return panel;
  }

  std::string note() const {
    std::vector<std::string> phrases;
    if (!windows_.empty()) {
      phrases.emplace_back("faint: each step");
      phrases.push_back(windows_.size() == 1
                            ? fmt::format("strong: mean of {} steps", *windows_.begin())
                            : "strong: mean over a thirtieth of the run");
    }
    if (shows_held_out_) phrases.emplace_back("markers: held-out");
    return join(phrases, "; ");
  }

 private:
  Curve curve(const Run& run, const std::string& metric, bool noisy) {
    Curve curve{.run = run.number};
    curve.line = samples(run, metric, unit_, options_.logarithmic_y);
    const int64_t window = smoothing_window(*run.metrics, options_);
    if (is_occasional(*run.metrics, metric)) {
      curve.markers = curve.line;
    } else if (noisy && window > 1) {
      curve.faint = std::exchange(curve.line, smoothed(curve.line, window));
      windows_.insert(window);
    }
    if (metric == kLoss && run.metrics->has(kHeldOutLoss)) {
      curve.markers = samples(run, kHeldOutLoss, unit_, options_.logarithmic_y);
      shows_held_out_ = true;
    }
    return curve;
  }

  const PlotOptions& options_;
  const AxisUnit& unit_;
  std::set<int64_t> windows_;  // the windows used, in steps
  bool shows_held_out_ = false;
};

/// Returns whether any point of the panel is in the range.
bool shows_anything(const Panel& panel, const Range& range) {
  const auto is_visible = [&](const Point& point) {
    return std::isfinite(point.y) && point.x >= range.low && point.x <= range.high;
  };
  return std::any_of(panel.curves.begin(), panel.curves.end(), [&](const Curve& curve) {
    return std::any_of(curve.line.begin(), curve.line.end(), is_visible) ||
           std::any_of(curve.markers.begin(), curve.markers.end(), is_visible);
  });
}

/// Returns a distinct name for each run. Runs that share a name get their file's path.
std::vector<std::string> run_names(std::span<const RunMetrics> runs) {
  std::vector<std::string> names;
  for (const RunMetrics& run : runs) {
    const auto sharing = std::count_if(runs.begin(), runs.end(), [&](const RunMetrics& other) {
      return other.name() == run.name();
    });
    names.push_back(sharing > 1 ? run.file().string() : run.name());
  }
  return names;
}

}  // namespace

std::string plot_metrics(std::span<const RunMetrics> runs, const PlotOptions& options) {
  TESSERA_CHECK(!runs.empty() && !options.metrics.empty(), "nothing to plot");
  if (runs.size() > kStyles) {
    throw Error("{} runs are too many for one picture, which tells {} apart; plot fewer",
                runs.size(), kStyles);
  }
  for (auto metric = options.metrics.begin(); metric != options.metrics.end(); ++metric) {
    require_known(runs, *metric);
    if (std::find(options.metrics.begin(), metric, *metric) != metric) {
      throw Error("the metric '{}' is given twice", *metric);
    }
  }
  std::vector<Run> drawn;
  for (const RunMetrics& run : runs) {
    drawn.push_back({&run, drawn.size(), x_values(run, options.x)});
  }
  const Range range = x_range(drawn, options);
  const AxisUnit unit = axis_unit(options.x, range.high);
  Chart chart{.title = options.title,
              .runs = run_names(runs),
              .x = {.label = unit.label,
                    .range = {range.low / unit.scale, range.high / unit.scale},
                    .whole = options.x == PlotAxis::step || options.x == PlotAxis::tokens,
                    .logarithmic = options.logarithmic_x},
              .logarithmic_y = options.logarithmic_y};
  if (chart.title.empty() && runs.size() == 1) chart.title = runs[0].name();
  PanelWriter writer(options, unit);
  for (const std::string& metric : options.metrics) {
    chart.panels.push_back(writer.panel(drawn, metric));
    if (!shows_anything(chart.panels.back(), chart.x.range)) {
      throw Error("{}: no run has a number to draw between {} and {}{}", metric, range.low,
                  range.high, options.logarithmic_y ? " that is above zero" : "");
    }
  }
  for (const Run& run : drawn) {
    for (const PhaseStart& start : run.metrics->phase_starts()) {
      // A phase begins where the step before its first one ends.
      chart.borders.push_back({run.x[start.row - 1] / unit.scale, start.name, run.number});
    }
  }
  chart.note = writer.note();
  return draw(chart);
}

}  // namespace tessera
