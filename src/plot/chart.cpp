#include "plot/chart.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "plot/style.h"
#include "plot/svg.h"

namespace tessera {
namespace {

// A picture has a title, a legend, panels (a single one, or two side by side in each row) and a
// note. A panel is drawn in a Frame, which maps data to pixels, in this order: axes, borders, faint
// lines, lines, markers. Points outside the axes become gaps, so nothing is drawn outside a panel.

// In pixels.
constexpr double kSinglePanelWidth = 860, kSinglePanelHeight = 384;
constexpr double kPanelWidth = 540, kPanelHeight = 300;                   // if there are several
constexpr double kRightMargin = 20, kTopMargin = 12, kBottomMargin = 48;  // around a panel's axes
constexpr double kTickGap = 8;         // between the y axis and its tick labels
constexpr double kLabelDistance = 60;  // from the y axis to its label, at least
constexpr double kLabelHeight = 16;
constexpr double kDigitWidth = 7.7;   // at size 12, in the widest of the usual fonts
constexpr double kLetterWidth = 6.6;  // the average at size 12
constexpr double kLegendHeight = 20, kLegendLine = 34, kLegendGap = 24;
constexpr double kMarkerColumn = 16;  // the column_width with which markers are thinned

/// The position of a panel, and its scales from data to pixels.
struct Frame {
  double left, right, top, bottom;
  ChartAxis x, y;

  /// Returns the pixel of a value on an axis that goes from pixel `low_end` to pixel `high_end`.
  static double coordinate(const ChartAxis& axis, double value, double low_end, double high_end) {
    const auto scaled = [&](double x) { return axis.logarithmic ? std::log10(x) : x; };
    const double low = scaled(axis.range.low), high = scaled(axis.range.high);
    return low_end + (scaled(value) - low) / (high - low) * (high_end - low_end);
  }
  Point pixel_of(Point point) const {
    return {coordinate(x, point.x, left, right), coordinate(y, point.y, bottom, top)};
  }
};

bool is_in_range(double value, const ChartAxis& axis) {
  return std::isfinite(value) && value >= axis.range.low && value <= axis.range.high;
}

/// Returns an axis with the range of the visible points and a margin, even if all y are equal.
ChartAxis y_axis(const Panel& panel, const ChartAxis& x, bool logarithmic) {
  double low = std::numeric_limits<double>::max();
  double high = std::numeric_limits<double>::lowest();
  for (const Curve& curve : panel.curves) {
    for (const auto* points : {&curve.faint, &curve.line, &curve.markers}) {
      for (const Point& point : *points) {
        const bool y_can_be_shown = std::isfinite(point.y) && (!logarithmic || point.y > 0);
        if (!is_in_range(point.x, x) || !y_can_be_shown) continue;
        low = std::min(low, point.y);
        high = std::max(high, point.y);
      }
    }
  }
  ChartAxis axis{.label = panel.label, .logarithmic = logarithmic};
  if (logarithmic) {
    const double margin = std::max(std::pow(high / low, 0.05), 1.02);
    axis.range = {low / margin, high * margin};
  } else {
    // Ticks need a range of more than 1e-9 of the numbers (linear_ticks()).
    const double largest = std::max(std::abs(low), std::abs(high));
    const double narrow = largest > 0 ? largest * 1e-6 : 1;
    const double margin =
        high - low > narrow ? (high - low) * 0.05 : std::max(largest * 0.05, 1e-300);
    axis.range = largest > 0 ? Range{low - margin, high + margin} : Range{-1, 1};
  }
  return axis;
}

Ticks ticks_of(const ChartAxis& axis, int count) {
  return axis.logarithmic ? log_ticks(axis.range, count)
                          : linear_ticks(axis.range, count, axis.whole);
}

Ticks y_ticks_of(const ChartAxis& y) { return ticks_of(y, 8); }

/// Returns the distance of the label from the axis. The label stays clear of the tick labels.
double label_distance(const Ticks& y_ticks) {
  size_t longest = 0;
  for (const std::string& label : y_ticks.labels)
    longest = std::max(longest, character_count(label));
  return std::max(kLabelDistance, static_cast<double>(longest) * kDigitWidth + 2 * kTickGap);
}

std::string axes_svg(const Frame& frame) {
  std::string svg;
  const Ticks y_ticks = y_ticks_of(frame.y);
  for (size_t i = 0; i < y_ticks.values.size(); ++i) {
    const double y = frame.pixel_of({frame.x.range.low, y_ticks.values[i]}).y;
    const Point ends[] = {{frame.left, y}, {frame.right, y}};
    svg += svg_path(ends, "stroke=\"#ddd\"");
    svg += svg_text({frame.left - kTickGap, y + 4}, Anchor::end, y_ticks.labels[i]);
  }
  const Ticks x_ticks = ticks_of(frame.x, frame.right - frame.left > 600 ? 10 : 7);
  for (size_t i = 0; i < x_ticks.values.size(); ++i) {
    const double x = frame.pixel_of({x_ticks.values[i], frame.y.range.low}).x;
    const Point ends[] = {{x, frame.bottom}, {x, frame.bottom + 5}};
    svg += svg_path(ends, "stroke=\"#333\"");
    svg += svg_text({x, frame.bottom + 20}, Anchor::middle, x_ticks.labels[i]);
  }
  const Point corner[] = {
      {frame.left, frame.top}, {frame.left, frame.bottom}, {frame.right, frame.bottom}};
  svg += svg_path(corner, "stroke=\"#333\"");
  svg +=
      svg_text({(frame.left + frame.right) / 2, frame.bottom + 40}, Anchor::middle, frame.x.label);
  return svg +
         svg_upward_text({frame.left - label_distance(y_ticks), (frame.top + frame.bottom) / 2},
                         frame.y.label);
}

/// Returns the points in pixels. Points outside the axes become gaps.
std::vector<Point> points_in_pixels(const std::vector<Point>& points, const Frame& frame) {
  std::vector<Point> result;
  for (const Point& point : points) {
    const bool visible = is_in_range(point.x, frame.x) && is_in_range(point.y, frame.y);
    result.push_back(visible ? frame.pixel_of(point) : Point{0, std::nan("")});
  }
  return result;
}

/// Returns a line of a run as one path for each piece, with further `attributes`. A point between
/// gaps is a dot, and a large dot if it is the line's only point.
std::string line_svg(const std::vector<Point>& line, size_t run, const Frame& frame,
                     const std::string& attributes) {
  std::string svg;
  const std::vector<Point> in_pixels = points_in_pixels(line, frame);
  const auto line_pieces = pieces(in_pixels);
  const bool single_point = line_pieces.size() == 1 && line_pieces[0].size() == 1;
  for (const auto piece : line_pieces) {
    const std::vector<Point> points = thinned(piece, 1);
    if (points.size() > 1) {
      svg += svg_path(points, fmt::format("stroke=\"{}\" {}", colour(run), attributes));
    } else {
      svg +=
          fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"/>\n", pixels(points[0].x),
                      pixels(points[0].y), single_point ? 4 : 2, colour(run));
    }
  }
  return svg;
}

/// Returns a line for each border, with its name to the right. A name that would run into the next
/// border of the same run is shortened. Names of different runs are at different heights.
std::string borders_svg(const Chart& chart, const Frame& frame) {
  std::string svg;
  for (size_t i = 0; i < chart.borders.size(); ++i) {
    const Border& border = chart.borders[i];
    if (!is_in_range(border.x, frame.x)) continue;
    const double x = frame.pixel_of({border.x, frame.y.range.low}).x;
    const std::string line = chart.runs.size() > 1 ? colour(border.run) : "#888";
    const Point ends[] = {{x, frame.top}, {x, frame.bottom}};
    svg += svg_path(ends, fmt::format("stroke=\"{}\" stroke-dasharray=\"3 4\"", line));
    double name_end = frame.right;
    for (size_t next = i + 1; next < chart.borders.size(); ++next) {
      const Border& later = chart.borders[next];
      if (later.run == border.run && is_in_range(later.x, frame.x)) {
        name_end = std::min(name_end, frame.pixel_of({later.x, frame.y.range.low}).x);
      }
    }
    const double room = (name_end - x - 8) / (kLetterWidth * 11 / 12);  // characters at size 11
    if (room < 3) continue;                                             // too few to be a name
    const double y = frame.top + 11 + 13 * static_cast<double>(border.run);
    svg += svg_text({x + 4, y}, Anchor::start, shortened(border.name, static_cast<size_t>(room)),
                    11, fmt::format("fill=\"{}\"", chart.runs.size() > 1 ? line : "#666"));
  }
  return svg;
}

std::string panel_svg(const Chart& chart, const Panel& panel, const Frame& frame) {
  std::string svg = axes_svg(frame) + borders_svg(chart, frame);
  // Faint lines are drawn first, so that they hide no strong line, and markers last.
  for (const Curve& curve : panel.curves) {
    svg += line_svg(curve.faint, curve.run, frame, "stroke-opacity=\"0.3\"");
  }
  for (const Curve& curve : panel.curves) {
    svg += line_svg(
        curve.line, curve.run, frame,
        fmt::format("stroke-width=\"1.8\" stroke-linejoin=\"round\"{}", dashes(curve.run)));
  }
  for (const Curve& curve : panel.curves) {
    const std::vector<Point> in_pixels = points_in_pixels(curve.markers, frame);
    for (const auto piece : pieces(in_pixels)) {
      for (const Point& point : thinned(piece, kMarkerColumn)) svg += marker(curve.run, point);
    }
  }
  return svg;
}

/// Adds the runs' names with their lines, in rows from `top` on. Returns their height.
double add_legend(const Chart& chart, double width, double left, double top, std::string& svg) {
  if (chart.runs.size() < 2) return 0;
  const auto longest = static_cast<size_t>((width - 2 * kMargin - kLegendLine) / kLetterWidth) - 8;
  const bool with_markers = std::ranges::any_of(chart.panels, [](const Panel& panel) {
    return std::ranges::any_of(panel.curves, [](const Curve& c) { return !c.markers.empty(); });
  });
  double x = left;
  double y = top;
  for (size_t run = 0; run < chart.runs.size(); ++run) {
    const std::string name = shortened(chart.runs[run], std::min<size_t>(longest, 60));
    const double needed =
        kLegendLine + 6 + static_cast<double>(character_count(name)) * kLetterWidth;
    if (x + needed > width - kMargin && x > left) {
      x = left;
      y += kLegendHeight;
    }
    const Point line[] = {{x, y + 10}, {x + kLegendLine, y + 10}};
    svg += svg_path(line,
                    fmt::format("stroke=\"{}\" stroke-width=\"1.8\"{}", colour(run), dashes(run)));
    if (with_markers) svg += marker(run, {x + kLegendLine / 2, y + 10});
    svg += svg_text({x + kLegendLine + 6, y + 14}, Anchor::start, name);
    x += needed + kLegendGap;
  }
  return y + kLegendHeight - top;
}

}  // namespace

std::string draw(const Chart& chart) {
  const bool single = chart.panels.size() == 1;
  const double panel_width = single ? kSinglePanelWidth : kPanelWidth;
  const double panel_height = single ? kSinglePanelHeight : kPanelHeight;
  const double width = single ? panel_width : 2 * panel_width;
  // All panels have the same left margin, which aligns the axes of panels above each other.
  std::vector<ChartAxis> y_axes;
  double axis_left = 0;
  for (const Panel& panel : chart.panels) {
    y_axes.push_back(y_axis(panel, chart.x, chart.logarithmic_y));
    axis_left = std::max(axis_left, label_distance(y_ticks_of(y_axes.back())) + kLabelHeight);
  }
  std::string svg;
  double y = kMargin / 2;
  if (!chart.title.empty()) {
    const auto longest = static_cast<size_t>(width / (kLetterWidth * 15 / 12)) - 4;
    svg += svg_text({width / 2, y + 18}, Anchor::middle, shortened(chart.title, longest), 15);
    y += kTitleHeight;
  }
  y += add_legend(chart, width, kMargin + axis_left, y, svg);
  for (size_t i = 0; i < chart.panels.size(); ++i) {
    const double left = i % 2 == 0 ? 0 : panel_width;
    const Frame frame{.left = left + axis_left,
                      .right = left + panel_width - kRightMargin,
                      .top = y + kTopMargin,
                      .bottom = y + panel_height - kBottomMargin,
                      .x = chart.x,
                      .y = y_axes[i]};
    svg += panel_svg(chart, chart.panels[i], frame);
    if (i % 2 == 1 || i + 1 == chart.panels.size()) y += panel_height;
  }
  if (!chart.note.empty()) {
    svg += svg_text({width - kRightMargin, y + 8}, Anchor::end, chart.note, 11, "fill=\"#666\"");
    y += kNoteHeight;
  }
  return svg_document(width, y, chart.title, svg);
}

}  // namespace tessera
