#pragma once

#include <string>
#include <vector>

namespace tessera {

/// One table of numbers shown as colours; values[row][column], NaN where there is none.
struct HeatPanel {
  std::string title;
  std::vector<std::vector<double>> values;
};

/// Tables over the same rows and columns, on one scale of colours from zero to the largest value.
struct HeatMap {
  std::string title;
  std::string row_label;  ///< what the rows are; the first row stands at the bottom, as on an axis
  std::vector<std::string> rows;
  std::string column_label;
  std::vector<std::string> columns;
  std::vector<HeatPanel> panels;
  size_t panels_across = 1;  ///< in a line of panels
  std::string unit;          ///< of the values, beside the scale
  std::string note;          ///< small print below
};

/// The picture as an SVG document, each value also in figures; equal maps give equal bytes. There
/// is at least one panel and one value above zero.
std::string draw(const HeatMap& map);

}  // namespace tessera
