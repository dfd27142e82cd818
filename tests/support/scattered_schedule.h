#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/file.h"

namespace tessera::testing {

/// Writes a schedule of four micro-batches with one chunk on each stage, and returns its path.
/// `ranks` has the rank of each chunk, in any order. Each rank runs all forward passes and then
/// `backwards`, in which '*' stands for its chunk.
inline std::string write_scattered_schedule(const fs::path& folder, const std::vector<int>& ranks,
                                            const std::string& backwards) {
  std::string text = fmt::format("tessera pipeline schedule 1\nmicro-batches 4\nchunks {}\n",
                                 fmt::join(ranks, " "));
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    const auto chunk = std::ranges::find(ranks, rank) - ranks.begin();
    for (const char c : fmt::format("rank {}: F*.0 F*.1 F*.2 F*.3 {}\n", rank, backwards)) {
      text += c == '*' ? std::to_string(chunk) : std::string(1, c);
    }
  }
  const fs::path path = folder / "schedule.txt";
  write_file(path, text);
  return path.string();
}

}  // namespace tessera::testing
