#include "train/plot/curve.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tessera {
namespace {

bool lower(const Point& a, const Point& b) { return a.y < b.y; }

/// Straight lines fitted to any stretch of points in constant time.
class PrefixSums {
 public:
  explicit PrefixSums(std::span<const Point> points) : values_{0}, moments_{0} {
    for (size_t i = 0; i < points.size(); ++i) {
      const long double value = points[i].y;
      values_.push_back(values_.back() + value);
      moments_.push_back(moments_.back() + static_cast<long double>(i) * value);
    }
  }

  /// The value at point `at` of the line that fits points `first` to `last` best, each one step
  /// from the next: their mean where `at` is in the middle.
  double line_at(int64_t at, int64_t first, int64_t last) const {
    const auto begin = static_cast<size_t>(first), end = static_cast<size_t>(last) + 1;
    const auto count = static_cast<long double>(end - begin);
    const long double middle = static_cast<long double>(first + last) / 2;
    const long double mean = (values_[end] - values_[begin]) / count;
    if (2 * at == first + last) return static_cast<double>(mean);
    const long double covariance = moments_[end] - moments_[begin] - count * middle * mean;
    const long double slope = covariance / (count * (count * count - 1) / 12);
    return static_cast<double>(mean + slope * (static_cast<long double>(at) - middle));
  }

 private:
  std::vector<long double> values_;   // the sum of all before each
  std::vector<long double> moments_;  // of number times value
};

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
    const auto [lowest, highest] = std::minmax_element(piece.begin(), piece.end(), lower);
    const PrefixSums sums(piece);
    const auto last = static_cast<int64_t>(piece.size()) - 1;
    const auto offset = piece.data() - curve.data();
    for (int64_t i = 0; i <= last; ++i) {
      const double fitted =
          sums.line_at(i, std::max<int64_t>(i - window / 2, 0), std::min(i + window / 2, last));
      // A line through the beginning of a steep fall must not end below what it falls to.
      result[static_cast<size_t>(offset + i)].y = std::clamp(fitted, lowest->y, highest->y);
    }
  }
  return result;
}

std::vector<Point> thinned(std::span<const Point> curve, double column) {
  std::vector<Point> result;
  for (size_t begin = 0, end = 0; begin < curve.size(); begin = end) {
    const double place = std::floor(curve[begin].x / column);
    while (end < curve.size() && std::floor(curve[end].x / column) == place) ++end;
    const auto points = curve.subspan(begin, end - begin);
    const auto [lowest, highest] = std::minmax_element(points.begin(), points.end(), lower);
    std::array<size_t, 4> kept{0, static_cast<size_t>(lowest - points.begin()),
                               static_cast<size_t>(highest - points.begin()), points.size() - 1};
    std::sort(kept.begin(), kept.end());
    for (size_t i = 0; i < kept.size(); ++i) {
      if (i == 0 || kept[i] != kept[i - 1]) result.push_back(points[kept[i]]);
    }
  }
  return result;
}

}  // namespace tessera
