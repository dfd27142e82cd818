#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "plot/curve.h"
#include "plot/ticks.h"

namespace tessera {

/// One run's data in one panel, in units of the data, with x ascending. A point that an axis cannot
/// show, such as zero on a logarithmic axis, becomes a gap.
struct Curve {
  size_t run = 0;            ///< index into Chart::runs; decides colour, dashes and marker
  std::vector<Point> faint;  ///< the line behind a smoothed one
  std::vector<Point> line;
  std::vector<Point> markers;
};

/// One y axis with its curves. At least one point must be visible.
struct Panel {
  std::string label;
  std::vector<Curve> curves;
};

/// An axis and the range of the data that it shows.
struct ChartAxis {
  std::string label;
  Range range;
  bool whole = false;  ///< only whole numbers at ticks
  bool logarithmic = false;
};

/// A border on the x axis, drawn through all panels.
struct Border {
  double x = 0;
  std::string name;  ///< of the part that begins there
  size_t run = 0;    ///< index into Chart::runs; decides the colour, if there are several
};

/// A picture of panels over one x axis.
struct Chart {
  std::string title;
  std::vector<std::string> runs;  ///< names; a legend is drawn if there are several
  ChartAxis x;
  bool logarithmic_y = false;
  std::vector<Panel> panels;
  std::vector<Border> borders;  ///< borders outside the x axis are left out
  std::string note;             ///< small print below
};

/// Returns the picture as an SVG document. Equal charts give equal bytes. The panels' width bounds
/// the size of the document, however many points the curves have.
std::string draw(const Chart& chart);

}  // namespace tessera
