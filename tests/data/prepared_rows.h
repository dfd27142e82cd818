#pragma once

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "data/npy.h"
#include "data/shards/manifest.h"
#include "data/support.h"

namespace tessera::testing {

using Row = std::vector<int32_t>;

/// Returns the number of elements of the array.
inline int64_t elements_of(const NpyHeader& header) {
  int64_t count = 1;
  for (const int64_t size : header.shape) count *= size;
  return count;
}

/// The rows of one split, read with nothing but the .npy header.
inline std::vector<Row> read_rows(const fs::path& folder, const SplitSummary& split) {
  std::vector<Row> rows;
  for (const Shard& shard : split.shards) {
    const std::string file = read_file(folder / shard.file);
    const NpyHeader header = parse_npy_header(std::as_bytes(std::span(file)),
                                              static_cast<int64_t>(file.size()), shard.file);
    EXPECT_EQ(header.dtype, DType::u16);
    EXPECT_EQ(hash_text(hash(file)), shard.hash);
    const size_t context = static_cast<size_t>(header.shape.at(1));
    std::vector<uint16_t> values(static_cast<size_t>(elements_of(header)));
    std::memcpy(values.data(), file.data() + header.data_offset, 2 * values.size());
    for (size_t i = 0; i < values.size(); i += context) {
      rows.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(i),
                        values.begin() + static_cast<std::ptrdiff_t>(i + context));
    }
  }
  EXPECT_EQ(static_cast<int64_t>(rows.size()), split.instances);
  return rows;
}

/// A corpus of both kinds in several files.
inline fs::path write_corpus(const TemporaryFolder& folder) {
  folder.write("in/a.txt", random_text(1, 2000));
  folder.write("in/b.txt", random_text(2, 30));
  std::string lines;
  for (uint64_t i = 0; i < 60; ++i) {
    lines += nlohmann::json{{"text", random_text(100 + i, 20)}, {"id", i}}.dump() + "\n";
  }
  folder.write("in/c.jsonl", lines);
  folder.write("in/d.txt", random_text(3, 500));
  return folder / "in";
}

}  // namespace tessera::testing
