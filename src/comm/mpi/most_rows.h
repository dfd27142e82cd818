#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// Returns the most rows that any rank of an all-to-all sends, or that any rank receives.
/// `rows[from * ranks + to]` is the number of rows that one rank sends to another.
inline int64_t most_rows(std::span<const int64_t> rows, int ranks) {
  const auto size = static_cast<size_t>(ranks);
  std::vector<int64_t> sent(size), received(size);
  for (size_t from = 0; from < size; ++from) {
    for (size_t to = 0; to < size; ++to) {
      sent[from] += rows[from * size + to];
      received[to] += rows[from * size + to];
    }
  }
  return std::max(std::ranges::max(sent), std::ranges::max(received));
}

}  // namespace tessera
