#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// A point of a curve, in units of the data or of the picture. A `y` that is not finite is a gap.
struct Point {
  double x = 0;
  double y = 0;
  bool operator==(const Point&) const = default;
};

/// Returns the pieces of a curve: its points between gaps. None of the pieces is empty.
std::vector<std::span<const Point>> pieces(std::span<const Point> curve);

/// Returns the curve with each y replaced by the mean of the `window` points around it. `window` is
/// odd. At the beginning of a piece, which is often steep, the window shrinks on both sides, so
/// that the line begins at the first value. At the end, it shrinks only on the side without points,
/// so that the line ends at a mean and not at a single noisy value. Gaps stay, and no mean crosses
/// a gap.
std::vector<Point> smoothed(std::span<const Point> curve, int64_t window);

/// Returns the points of a curve that a picture needs. The curve has no gaps, and x ascends. The
/// picture is cut into columns of width `column_width`. Of each column the first, the lowest, the
/// highest and the last point remain, so a line through them loses no spike.
std::vector<Point> thinned(std::span<const Point> curve, double column_width);

}  // namespace tessera
