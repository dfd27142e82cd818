#pragma once

#include <string>
#include <vector>

namespace tessera {

/// A table of numbers shown as colours: values[row][column], NaN if there is none.
struct HeatPanel {
  std::string title;
  std::vector<std::vector<double>> values;
};

/// Tables over the same rows and columns, with one scale of colours from zero to the largest value.
struct HeatMap {
  std::string title;
  std::string row_label;  ///< the meaning of the rows; the first row is at the bottom
  std::vector<std::string> rows;
  std::string column_label;
  std::vector<std::string> columns;
  std::vector<HeatPanel> panels;
  size_t panels_across = 1;  ///< the largest number of panels side by side
  std::string unit;          ///< unit of the values, shown beside the scale
  std::string note;          ///< small print below
};

/// Returns the picture as an SVG document. Each value is also written as a number. Equal maps give
/// equal bytes. There must be at least one panel and one value above zero.
std::string draw(const HeatMap& map);

}  // namespace tessera
