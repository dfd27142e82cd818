#include "plot/ticks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "base/error.h"

namespace tessera {
namespace {

constexpr std::array<const char*, 7> kSuffixes{"", "k", "M", "G", "T", "P", "E"};
constexpr size_t kFewestTicks = 3;  // of a logarithmic axis

/// Returns the exponent of the power of ten at or below a number above zero. The margin allows for
/// rounding: the logarithm of 1000 may come out just below 3.
int exponent_of(double value) { return static_cast<int>(std::floor(std::log10(value) + 1e-9)); }

/// Returns the least 1, 2 or 5 times a power of ten that is at least `minimum`, up to rounding.
double round_step(double minimum) {
  const double power = std::pow(10.0, exponent_of(minimum));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (minimum <= power * factor * (1 + 1e-9)) return power * factor;
  }
  return power * 10;
}

/// Returns the number of decimals that distinguish multiples of `step`.
int decimals_of(double step) { return std::max(0, -exponent_of(step)); }

/// Returns the labels of multiples of `step`, which share the number of decimals and the suffix.
std::vector<std::string> common_labels(std::span<const double> values, double step) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  std::string suffix;
  double scale = 1;
  if (largest > 0 && (largest < 1e-3 || largest >= 1e21)) {  // 1e21 is beyond "E"
    const int exponent = exponent_of(largest);
    scale = std::pow(10.0, exponent);
    suffix = fmt::format("e{}", exponent);
  } else {
    // The largest suffix with which `largest` is at least 1 and labels need at most two decimals.
    for (size_t i = 1; i < kSuffixes.size(); ++i) {
      const double larger = std::pow(1000.0, static_cast<double>(i));
      if (largest < larger || decimals_of(step / larger) > 2) break;
      scale = larger;
      suffix = kSuffixes[i];
    }
  }
  std::vector<std::string> labels;
  for (const double value : values) {
    labels.push_back(
        value == 0 ? "0"
                   : fmt::format("{:.{}f}{}", value / scale, decimals_of(step / scale), suffix));
  }
  return labels;
}

/// Returns the label of a single number of one significant digit, as on a logarithmic axis.
std::string single_label(double value) {
  const int exponent = exponent_of(value);
  if (exponent < -2 || exponent >= 21) {
    return fmt::format("{:.0f}e{}", value / std::pow(10.0, exponent), exponent);
  }
  const int thousands = std::max(0, exponent / 3);
  return fmt::format("{:g}{}", value / std::pow(1000.0, thousands),
                     kSuffixes[static_cast<size_t>(thousands)]);
}

/// Returns the powers of ten with an exponent divisible by `stride`, times each of `factors`, that
/// are within the range. The margins keep numbers at the very ends in spite of rounding.
std::vector<double> scaled_powers(const Range& range, std::span<const int> factors, int stride) {
  std::vector<double> values;
  const int first = exponent_of(range.low);
  const int last = exponent_of(range.high);
  for (int exponent = first; exponent <= last; ++exponent) {
    if (exponent % stride != 0) continue;
    for (const int factor : factors) {
      // Parsing gives the number nearest to 0.3; 3 * 0.1 would not.
      const double value = std::stod(fmt::format("{}e{}", factor, exponent));
      if (value >= range.low * (1 - 1e-12) && value <= range.high * (1 + 1e-12)) {
        values.push_back(value);
      }
    }
  }
  return values;
}

}  // namespace

Ticks linear_ticks(const Range& range, int count, bool whole) {
  TESSERA_CHECK(range.low < range.high && count > 0, "an axis from {} to {}", range.low,
                range.high);
  double step = round_step((range.high - range.low) / count);
  if (whole) step = std::max(step, 1.0);
  Ticks ticks;
  // Counting avoids adding up rounding errors. The margins of a millionth of a step keep ticks at
  // the very ends.
  const double first = std::ceil(range.low / step - 1e-6);
  const double last = std::floor(range.high / step + 1e-6);
  for (double multiple = first; multiple <= last; ++multiple) {
    // A division by a whole number is exact to the last bit; a product is not.
    const double value = step < 1 ? multiple / std::round(1 / step) : multiple * step;
    ticks.values.push_back(value + 0.0);  // removes the sign of -0
  }
  ticks.labels = common_labels(ticks.values, step);
  return ticks;
}

Ticks log_ticks(const Range& range, int count) {
  TESSERA_CHECK(range.low > 0 && range.low < range.high && count > 0,
                "a logarithmic axis from {} to {}", range.low, range.high);
  constexpr std::array<int, 9> kAllFactors{1, 2, 3, 4, 5, 6, 7, 8, 9};
  constexpr std::array<int, 3> kRoundFactors{1, 2, 5};
  const int decades = exponent_of(range.high) - exponent_of(range.low);
  const int stride = std::max(1, (decades + count - 1) / count);
  for (const std::span<const int> factors :
       {std::span(kAllFactors).first(1), std::span<const int>(kRoundFactors),
        std::span<const int>(kAllFactors)}) {
    Ticks ticks{scaled_powers(range, factors, stride), {}};
    if (ticks.values.size() < kFewestTicks) continue;
    for (const double value : ticks.values) ticks.labels.push_back(single_label(value));
    return ticks;
  }
  return linear_ticks(range, count, false);
}

}  // namespace tessera
