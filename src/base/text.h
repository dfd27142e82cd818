#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Returns the candidate nearest to `word` by edit distance. Returns an empty text if none is near
/// enough for `word` to be a likely typing error: the distance may be at most a third of the
/// letters of `word`, or 2 if that is more.
std::string nearest_name(std::string_view word, std::span<const std::string> candidates);

/// Formats a number of bytes: 1536 -> "1.5 KiB"; always in binary units.
std::string format_bytes(int64_t bytes);

/// Parses a number of bytes as people write it: "300", "2kB", "1.5GB" (10^9 bytes per GB), "2GiB"
/// (2^30). Case does not matter, and a fraction of a byte is dropped. Throws Error for anything
/// else and for 2^63 or more.
int64_t parse_bytes(std::string_view text);

/// Formats a count: 1234567 -> "1.23 M"; in decimal units, with three significant digits from a
/// thousand on.
std::string format_count(double count);

/// Formats a duration: 75 -> "1m15s"; 4000 -> "1h06m".
std::string format_duration(double seconds);

/// Returns the words with the separator between them.
std::string join(std::span<const std::string> words, std::string_view separator);

/// Returns "a", "a and b", or "a, b and 3 more" if there are many. Throws InternalError without
/// words.
std::string enumeration(std::vector<std::string> words);

/// A table for a terminal. Columns are as wide as their widest cell, and numbers (cells that start
/// with a digit or a sign) are aligned right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// Formats seconds with four significant digits: 0.01234 -> "12.34 ms".
std::string format_seconds(double seconds);

}  // namespace tessera
