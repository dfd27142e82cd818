#include "plot/heat_map.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "plot/colour.h"
#include "plot/style.h"
#include "plot/svg.h"
#include "plot/ticks.h"

namespace tessera {
namespace {

// A picture has a title, panels of coloured cells in rows of `panels_across`, the scale of colours
// to their right, and a note.

// In pixels.
constexpr double kCellWidth = 46, kCellHeight = 26;
constexpr double kRowLabels = 66, kColumnLabels = 48, kPanelTitle = 26, kPanelGap = 14;
constexpr double kScaleWidth = 14, kScaleLabels = 70;
constexpr int kScaleSteps = 64;

/// Colours from dark to bright, in even steps of lightness, distinct with any kind of colour
/// vision: points of matplotlib's "viridis" (CC0).
constexpr std::array<Colour, 6> kHeatColours{
    {{68, 1, 84}, {65, 68, 135}, {42, 120, 142}, {34, 168, 132}, {122, 209, 81}, {253, 231, 37}}};

Colour colour_of(double fraction) {
  const double position = std::clamp(fraction, 0.0, 1.0) * (kHeatColours.size() - 1);
  const auto below = std::min(static_cast<size_t>(position), kHeatColours.size() - 2);
  const double weight = position - static_cast<double>(below);
  return mixed(kHeatColours[below], kHeatColours[below + 1], weight);
}

/// Returns a value with two decimals below 1, one below 10, else none: "0.42", "9.1", "87".
std::string rounded_text(double value) {
  return fmt::format("{:.{}f}", value, value < 1 ? 2 : value < 10 ? 1 : 0);
}

double largest_value(const HeatMap& map) {
  double largest = 0;
  for (const HeatPanel& panel : map.panels) {
    TESSERA_CHECK(panel.values.size() == map.rows.size(), "{} rows of {}", panel.values.size(),
                  map.rows.size());
    for (const auto& row : panel.values) {
      TESSERA_CHECK(row.size() == map.columns.size(), "{} columns of {}", row.size(),
                    map.columns.size());
      for (const double value : row) {
        if (std::isfinite(value)) largest = std::max(largest, value);
      }
    }
  }
  TESSERA_CHECK(largest > 0, "a heat map without a value above zero");
  return largest;
}

std::string cell_svg(Point corner, double value, double largest) {
  if (!std::isfinite(value)) return svg_rectangle(corner, kCellWidth, kCellHeight, "#eee");
  const Colour colour = colour_of(value / largest);
  return svg_rectangle(corner, kCellWidth, kCellHeight, hex_text(colour)) +
         svg_text({corner.x + kCellWidth / 2, corner.y + kCellHeight / 2 + 4}, Anchor::middle,
                  rounded_text(value), 11, text_fill_on(colour));
}

/// Returns a panel whose cells begin at that corner.
std::string panel_svg(const HeatMap& map, const HeatPanel& panel, Point corner, double largest) {
  const double width = kCellWidth * static_cast<double>(map.columns.size());
  const double height = kCellHeight * static_cast<double>(map.rows.size());
  std::string svg = svg_text({corner.x + width / 2, corner.y - 8}, Anchor::middle, panel.title, 13);
  for (size_t row = 0; row < map.rows.size(); ++row) {
    const double y = corner.y + height - kCellHeight * static_cast<double>(row + 1);
    svg += svg_text({corner.x - 6, y + kCellHeight / 2 + 4}, Anchor::end, map.rows[row]);
    for (size_t column = 0; column < map.columns.size(); ++column) {
      const double x = corner.x + kCellWidth * static_cast<double>(column);
      svg += cell_svg({x, y}, panel.values[row][column], largest);
    }
  }
  for (size_t column = 0; column < map.columns.size(); ++column) {
    const double x = corner.x + kCellWidth * (static_cast<double>(column) + 0.5);
    svg += svg_text({x, corner.y + height + 16}, Anchor::middle, map.columns[column]);
  }
  svg += svg_upward_text({corner.x - 52, corner.y + height / 2}, map.row_label);
  return svg +
         svg_text({corner.x + width / 2, corner.y + height + 34}, Anchor::middle, map.column_label);
}

/// Returns the scale of colours from `top` down, with its ticks.
std::string scale_svg(const HeatMap& map, Point top, double height, double largest) {
  std::string svg;
  for (int step = 0; step < kScaleSteps; ++step) {
    const double y = top.y + height * (kScaleSteps - 1 - step) / kScaleSteps;
    // Steps overlap by half a pixel, so that no gaps show between them.
    svg += svg_rectangle({top.x, y}, kScaleWidth, height / kScaleSteps + 0.5,
                         hex_text(colour_of((step + 0.5) / kScaleSteps)));
  }
  const Ticks ticks = linear_ticks({0, largest}, 6, false);
  for (size_t i = 0; i < ticks.values.size(); ++i) {
    const double y = top.y + height * (1 - ticks.values[i] / largest);
    svg += svg_text({top.x + kScaleWidth + 6, y + 4}, Anchor::start, ticks.labels[i]);
  }
  return svg + svg_text({top.x, top.y - 8}, Anchor::start, map.unit);
}

}  // namespace

std::string draw(const HeatMap& map) {
  const double largest = largest_value(map);
  const size_t panels_across = std::min(std::max<size_t>(map.panels_across, 1), map.panels.size());
  const size_t panels_down = (map.panels.size() + panels_across - 1) / panels_across;
  const double panel_width =
      kRowLabels + kCellWidth * static_cast<double>(map.columns.size()) + kPanelGap;
  const double cells_height = kCellHeight * static_cast<double>(map.rows.size());
  const double panel_height = kPanelTitle + cells_height + kColumnLabels;
  const double top = map.title.empty() ? kMargin : kMargin + kTitleHeight;
  const double scale_x = kMargin + panel_width * static_cast<double>(panels_across);
  const double width = scale_x + kScaleWidth + kScaleLabels;
  double height = top + panel_height * static_cast<double>(panels_down);
  std::string svg;
  if (!map.title.empty()) {
    const auto longest = static_cast<size_t>(width / 8.5);  // about the width of a letter
    svg += svg_text({width / 2, kMargin + 12}, Anchor::middle, shortened(map.title, longest), 15);
  }
  for (size_t i = 0; i < map.panels.size(); ++i) {
    const Point corner{kMargin + kRowLabels + panel_width * static_cast<double>(i % panels_across),
                       top + kPanelTitle + panel_height * static_cast<double>(i / panels_across)};
    svg += panel_svg(map, map.panels[i], corner, largest);
  }
  svg += scale_svg(map, {scale_x, top + kPanelTitle}, cells_height, largest);
  if (!map.note.empty()) {
    svg += svg_text({kMargin, height + 8}, Anchor::start, map.note, 11, "fill=\"#666\"");
    height += kNoteHeight;
  }
  return svg_document(width, height, map.title, svg);
}

}  // namespace tessera
