#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>

#include "base/error.h"
#include "ops/gemm/gemm_plan.h"

namespace tessera {

/// Rounds `value` to the type of `to`, in a form that vectorises within larger loops. A NaN stays a
/// NaN if the processor made it or if it came from a bf16.
inline void store_rounded(float value, float& to) { to = value; }
inline void store_rounded(float value, BFloat16& to) {
  const auto word = std::bit_cast<uint32_t>(value);
  to.bits = static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

/// Returns the largest scratch memory that one of the products needs.
inline int64_t most_workspace(const Target& target, std::initializer_list<GemmShape> products) {
  int64_t bytes = 0;
  for (const GemmShape& product : products) {
    bytes = std::max(bytes, gemm_workspace_bytes(target, product));
  }
  return bytes;
}

/// The matrix products of tiles, by the tile's rows and columns. There are few shapes: whole tiles,
/// and tiles cut by the end of a sequence or by the diagonal.
template <typename Products>
class TileTable {
 public:
  /// Adds the products of a shape, made by make(rows, columns), unless the table has them.
  template <typename Make>
  void add(int64_t rows, int64_t columns, Make&& make) {
    if (find(rows, columns)) return;
    TESSERA_CHECK(size_ < entries_.size(), "more than {} shapes of tiles", entries_.size());
    entries_[size_++] = {rows, columns, make(rows, columns)};
  }

  /// Returns the products of a shape, or null if the table does not have them.
  const Products* find(int64_t rows, int64_t columns) const {
    for (size_t i = 0; i < size_; ++i) {
      if (entries_[i].rows == rows && entries_[i].columns == columns) return &entries_[i].products;
    }
    return nullptr;
  }

 private:
  struct Entry {
    int64_t rows = 0;
    int64_t columns = 0;
    Products products;
  };
  std::array<Entry, 40> entries_{};  // a cache's last tile has the most: 2 times 16 sizes
  size_t size_ = 0;
};

}  // namespace tessera
