#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

/// Rows [begin, end) that are worked on in chunks of `chunk` rows, which divide them evenly.
struct RowSection {
  int64_t begin;
  int64_t end;
  int64_t chunk;
};

/// Rows [0, rows) in chunks of at most `chunk`, at least 1: those of whole chunks, and what is left
/// over. A product is made ready once for each.
inline std::vector<RowSection> row_sections(int64_t rows, int64_t chunk) {
  const int64_t whole = rows / chunk * chunk;
  std::vector<RowSection> sections;
  if (whole > 0) sections.push_back({0, whole, chunk});
  if (whole < rows) sections.push_back({whole, rows, rows - whole});
  return sections;
}

}  // namespace tessera
