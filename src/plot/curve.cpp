#include "plot/curve.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tessera {
namespace {

bool is_lower(const Point& a, const Point& b) { return a.y < b.y; }

}  // namespace

std::vector<std::span<const Point>> pieces(std::span<const Point> curve) {
  std::vector<std::span<const Point>> result;
  const auto finite = [](const Point& point) { return std::isfinite(point.y); };
  auto begin = std::find_if(curve.begin(), curve.end(), finite);
  while (begin != curve.end()) {
    const auto end = std::find_if_not(begin, curve.end(), finite);
    result.emplace_back(begin, end);
    begin = std::find_if(end, curve.end(), finite);
  }
  return result;
}

std::vector<Point> smoothed(std::span<const Point> curve, int64_t window) {
  std::vector<Point> result(curve.begin(), curve.end());
  for (const auto piece : pieces(curve)) {
    const auto [lowest, highest] = std::minmax_element(piece.begin(), piece.end(), is_lower);
    // sums[i] is the sum of the first i values, so that a mean takes constant time.
    std::vector<long double> sums{0};
    for (const Point& point : piece) sums.push_back(sums.back() + point.y);
    const auto offset = static_cast<size_t>(piece.data() - curve.data());
    for (size_t i = 0; i < piece.size(); ++i) {
      const size_t behind = std::min(static_cast<size_t>(window / 2), i);
      const size_t ahead = std::min(behind, piece.size() - 1 - i);
      const auto mean = static_cast<double>((sums[i + ahead + 1] - sums[i - behind]) /
                                            static_cast<long double>(behind + 1 + ahead));
      // Differences of close sums are rounded; the clamp keeps a mean within its values.
      result[offset + i].y = std::clamp(mean, lowest->y, highest->y);
    }
  }
  return result;
}

std::vector<Point> thinned(std::span<const Point> curve, double column_width) {
  std::vector<Point> result;
  for (size_t begin = 0, end = 0; begin < curve.size(); begin = end) {
    const double column_index = std::floor(curve[begin].x / column_width);
    while (end < curve.size() && std::floor(curve[end].x / column_width) == column_index) ++end;
    const auto points = curve.subspan(begin, end - begin);
    const auto [lowest, highest] = std::minmax_element(points.begin(), points.end(), is_lower);
    // Sorted, because x ascends. A point may be several of the four.
    std::array<size_t, 4> indices{0, static_cast<size_t>(lowest - points.begin()),
                                  static_cast<size_t>(highest - points.begin()), points.size() - 1};
    std::sort(indices.begin(), indices.end());
    for (size_t i = 0; i < indices.size(); ++i) {
      if (i == 0 || indices[i] != indices[i - 1]) result.push_back(points[indices[i]]);
    }
  }
  return result;
}

}  // namespace tessera
