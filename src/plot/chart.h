#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "plot/curve.h"
#include "plot/ticks.h"

namespace tessera {

/// What one run has in one panel, in units of the data, x growing. Points at which an axis has no
/// place, such as zero on a logarithmic one, are gaps.
struct Curve {
  size_t run = 0;            ///< which of Chart::runs, and so its colour, dashes and marker
  std::vector<Point> faint;  ///< what lies behind a smoothed line
  std::vector<Point> line;
  std::vector<Point> markers;
};

/// One y axis with its curves. At least one point has a place.
struct Panel {
  std::string label;
  std::vector<Curve> curves;
};

struct ChartAxis {
  std::string label;
  Range range;
  bool whole = false;  ///< only whole numbers stand at ticks
  bool logarithmic = false;
};

/// A picture of panels over one x axis.
struct Chart {
  std::string title;
  std::vector<std::string> runs;  ///< names; a legend is drawn where there are several
  ChartAxis x;
  bool logarithmic_y = false;
  std::vector<Panel> panels;
  std::string note;  ///< small print below
};

/// The picture as an SVG document; equal charts give equal bytes. Its size is bounded by the
/// panels' width, however many points the curves have.
std::string draw(const Chart& chart);

}  // namespace tessera
