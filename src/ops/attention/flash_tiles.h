#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "ops/gemm/gemm_plan.h"

namespace tessera {

/// The number of queries in one tile of the forward pass. With 256 queries, products are a few per
/// cent faster. But masked pairs cost that gain at the diagonal, and far more with short documents.
inline constexpr int64_t kForwardQueries = 128;
inline constexpr int64_t kBackwardQueries = 128;  ///< the same of the backward pass

/// The number of keys in one tile of attention: the largest power of two with which scores and
/// probabilities fit into a core's second-level cache, but at least 256 and at most 1024. An
/// unknown cache counts as 1 MiB. Sums go tile by tile, so other sizes round differently.
struct AttentionTiles {
  explicit AttentionTiles(const Target& target) {
    const int64_t known = target.caches.second_level;
    const int64_t bytes = known > 0 ? known : int64_t{1} << 20;
    const auto keys_within = [&](int64_t bytes_a_key) {
      const auto keys = static_cast<uint64_t>(bytes / bytes_a_key);
      return std::clamp<int64_t>(static_cast<int64_t>(std::bit_floor(keys)), 256, 1024);
    };
    // Scores are f32 and probabilities bf16. The backward pass also has the gradients of both.
    forward_keys = keys_within(kForwardQueries * (4 + 2));
    backward_keys = keys_within(kBackwardQueries * 2 * (4 + 2));
  }

  int64_t forward_keys;
  int64_t backward_keys;
};

/// Rounds `value` to the type of `to`, in a form that vectorises within larger loops. A NaN stays a
/// NaN if the processor made it or if it came from a bf16.
inline void store_rounded(float value, float& to) { to = value; }
inline void store_rounded(float value, BFloat16& to) {
  const auto word = std::bit_cast<uint32_t>(value);
  to.bits = static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

/// Returns the product C [m, n] = A [m, k] B [k, n] of tiles, in f32. `strides` are the elements
/// from one stored row to the next of A, B and C.
inline GemmShape tile_product(DType dtype, const std::array<int64_t, 3>& m_n_k,
                              const std::array<int64_t, 3>& strides) {
  return {.m = m_n_k[0],
          .n = m_n_k[1],
          .k = m_n_k[2],
          .input = dtype,
          .output = DType::f32,
          .lda = strides[0],
          .ldb = strides[1],
          .ldc = strides[2]};
}

/// Returns the scratch bytes of the product that needs the most.
inline int64_t largest_workspace(const Target& target, std::span<const GemmShape> products) {
  int64_t bytes = 0;
  for (const GemmShape& product : products) {
    bytes = std::max(bytes, gemm_workspace_bytes(target, product));
  }
  return bytes;
}

/// The matrix products of tiles, by the tile's rows and columns. There are few shapes: whole tiles,
/// and tiles that the end of a sequence or the diagonal (query = key) shortens.
template <size_t products_of_tile>
class TileTable {
 public:
  using Products = std::array<const Gemm*, products_of_tile>;

  /// Adds and prepares the products of a tile, unless the table has them.
  void add(Runtime& runtime, int64_t rows, int64_t columns,
           const std::array<GemmShape, products_of_tile>& shapes) {
    if (find(rows, columns)) return;
    TESSERA_CHECK(size_ < entries_.size(), "more than {} shapes of tiles", entries_.size());
    Entry& entry = entries_[size_++];
    entry = {rows, columns, {}};
    std::ranges::transform(shapes, entry.products.begin(),
                           [&](const GemmShape& shape) { return &prepare_gemm(runtime, shape); });
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
    Products products{};
  };
  std::array<Entry, 40> entries_{};  // at most 32: 2 numbers of queries, 16 of keys
  size_t size_ = 0;
};

}  // namespace tessera
