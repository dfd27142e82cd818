#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

/// Rows [begin, end) that are processed in chunks of `chunk` rows, which divide them evenly.
struct RowSection {
  int64_t begin;
  int64_t end;
  int64_t chunk;
};

/// Divides rows [0, rows) into chunks of at most `chunk` rows; `chunk` is at least 1. Returns up to
/// two sections, none for no rows: the whole chunks, and one shorter chunk of the rest. All chunks
/// of a section have one shape, so a product is prepared once for each section.
inline std::vector<RowSection> row_sections(int64_t rows, int64_t chunk) {
  const int64_t whole = rows / chunk * chunk;
  std::vector<RowSection> sections;
  if (whole > 0) sections.push_back({0, whole, chunk});
  if (whole < rows) sections.push_back({whole, rows, rows - whole});
  return sections;
}

}  // namespace tessera
