#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// A point of a curve, in the units of the data or of the picture. A `y` that is not finite is a
/// gap.
struct Point {
  double x = 0;
  double y = 0;
  bool operator==(const Point&) const = default;
};

/// The parts of a curve between its gaps, none of them empty.
std::vector<std::span<const Point>> pieces(std::span<const Point> curve);

/// The curve with each y replaced by the mean of `window` points around it, an odd number. Where a
/// piece begins, which is often steep, the window shrinks on both sides, so that the line begins at
/// the first value; where it ends, only on the side that has no more points, so that the line ends
/// at a mean and not at the last value's chance. Gaps stay, and no mean goes across one.
std::vector<Point> smoothed(std::span<const Point> curve, int64_t window);

/// What is seen of a curve without gaps, x growing: of the points in each column of that width, the
/// first, the lowest, the highest and the last, so that a line through them covers the same pixels
/// and no spike is lost.
std::vector<Point> thinned(std::span<const Point> curve, double column);

}  // namespace tessera
