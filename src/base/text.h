#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The candidate nearest to `word` by edit distance, or an empty string when none is near enough
/// to be a likely slip of the pen (more than a third of the letters, at least 2).
std::string nearest_name(std::string_view word, std::span<const std::string> candidates);

/// 1536 -> "1.5 KiB"; always binary units.
std::string format_bytes(int64_t bytes);

/// A number of bytes as people write it: "300", "2kB", "1.5GB" (10^9 bytes a GB), "2GiB" (2^30),
/// case-insensitive; a part of a byte is dropped. Throws Error for anything else and from 2^63.
int64_t parse_bytes(std::string_view text);

/// 1234567 -> "1.23 M"; decimal units, three significant digits.
std::string format_count(double count);

/// 75 -> "1m15s"; 4000 -> "1h06m".
std::string format_duration(double seconds);

/// Joins with a separator.
std::string join(std::span<const std::string> parts, std::string_view separator);

/// A table for a terminal: columns as wide as their widest cell, numbers (cells that start with a
/// digit or a sign) set to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tessera
