#include "base/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"

namespace tessera {
namespace {

/// Returns the Levenshtein distance. After round i, `row` holds the distances of the first i
/// letters of `a` to all prefixes of `b`.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitution});
    }
  }
  return row[b.size()];
}

bool looks_numeric(std::string_view cell) {
  return !cell.empty() && (std::isdigit(static_cast<unsigned char>(cell[0])) != 0 ||
                           ((cell[0] == '-' || cell[0] == '+') && cell.size() > 1));
}

}  // namespace

std::string nearest_name(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string format_bytes(int64_t bytes) {
  constexpr std::array<const char*, 6> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024.0 && unit + 1 < units.size()) {
    value /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

int64_t parse_bytes(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 12> units{{{"", 1},
                                                                       {"b", 1},
                                                                       {"kb", 1e3},
                                                                       {"mb", 1e6},
                                                                       {"gb", 1e9},
                                                                       {"tb", 1e12},
                                                                       {"pb", 1e15},
                                                                       {"kib", 0x1p10},
                                                                       {"mib", 0x1p20},
                                                                       {"gib", 0x1p30},
                                                                       {"tib", 0x1p40},
                                                                       {"pib", 0x1p50}}};
  double number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' '));
  std::ranges::transform(unit, unit.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  const auto known = std::ranges::find(units, unit, &std::pair<std::string_view, double>::first);
  const double bytes = known == units.end() ? -1 : number * known->second;
  if (code != std::errc() || !(bytes >= 0 && bytes < 0x1p63)) {
    throw Error("found '{}'; expected a number of bytes, such as 5GB, 500MB or 1.5GiB", text);
  }
  return static_cast<int64_t>(bytes);
}

std::string format_count(double count) {
  constexpr std::array<const char*, 7> units{"", " k", " M", " G", " T", " P", " E"};
  size_t unit = 0;
  // 999.5 would round to 1000 in the smaller unit, a digit too many, so it gets the larger unit.
  while (std::abs(count) >= 999.5 && unit + 1 < units.size()) {
    count /= 1000.0;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.4g}", count);
  const int decimals = std::abs(count) >= 99.95 ? 0 : std::abs(count) >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", count, decimals, units[unit]);
}

std::string format_duration(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  if (total < 60) return fmt::format("{}s", total);
  if (total < 3600) return fmt::format("{}m{:02}s", total / 60, total % 60);
  if (total < 86400) return fmt::format("{}h{:02}m", total / 3600, total / 60 % 60);
  return fmt::format("{}d{:02}h", total / 86400, total / 3600 % 24);
}

std::string join(std::span<const std::string> words, std::string_view separator) {
  std::string result;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) result += separator;
    result += words[i];
  }
  return result;
}

std::string enumeration(std::vector<std::string> words) {
  constexpr size_t kMost = 12;
  TESSERA_CHECK(!words.empty(), "an enumeration of nothing");
  std::string last = words.back();
  words.pop_back();
  if (words.empty()) return last;
  if (words.size() >= kMost) {
    last = fmt::format("{} more", words.size() + 1 - kMost);
    words.resize(kMost);
  }
  return join(words, ", ") + " and " + last;
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string result;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      line += looks_numeric(row[i]) ? fmt::format("{:>{}}", row[i], widths[i])
                                    : fmt::format("{:<{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);  // no spaces at the end of a line
    result += line + "\n";
  }
  return result;
}

std::string format_seconds(double seconds) {
  if (seconds >= 1) return fmt::format("{:.4g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} us", seconds * 1e6);
}

}  // namespace tessera
