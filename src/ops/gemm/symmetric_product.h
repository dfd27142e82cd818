#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/parallel.h"
#include "ops/gemm/gemm.h"

namespace tessera {

/// The size of a product of a matrix with its own transpose.
struct SymmetricSize {
  int64_t n = 0;
  int64_t k = 0;
  DType dtype = DType::f32;
  int threads = 1;  ///< 1 for a product called from within a parallel region
};

/// The product C = A Aᵀ of a matrix A [n, k] on the processor, which is symmetric (ZAYA1, section
/// V-B1). A product of its own computes each block of columns down to the diagonal; mirror_upper()
/// writes the rest. So a large product takes little more than half of the FLOPs. The plain kernel,
/// and small products, take one block.
class SymmetricProduct {
 public:
  /// Must not be called within a parallel region. The product may run there.
  SymmetricProduct(Runtime& runtime, const SymmetricSize& size);
  static int64_t workspace_bytes(const Target& target, const SymmetricSize& size);

  /// Computes the upper triangle of C. What is below it is undefined afterwards.
  void run_upper(const void* a, void* c, std::byte* workspace) const;

 private:
  struct Block {
    const Gemm* product;
    int64_t first;  // column
  };
  SymmetricSize size_;
  std::vector<Block> blocks_;
  int side_by_side_ = 1;     // blocks, each by one thread
  int64_t block_bytes_ = 0;  // of scratch memory
};

/// Sets c[i][j] and c[j][i] of a matrix [n, n] to value(i, j), for all i <= j. value() may read
/// c[i][j], which is written after that.
template <typename T, typename Function>
void mirror_upper(int threads, int64_t n, T* c, Function&& value) {
  constexpr int64_t kTile = 64;
  const int64_t tiles = (n + kTile - 1) / kTile;
  const auto mirror_tile = [&](int64_t row, int64_t column) {
    std::array<T, kTile * kTile> tile;
    const int64_t rows = std::min(kTile, n - row);
    const int64_t columns = std::min(kTile, n - column);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t begin = row == column ? i : 0;
      for (int64_t j = begin; j < columns; ++j) {
        const T entry = value(row + i, column + j);
        tile[static_cast<size_t>(i * kTile + j)] = entry;
        c[(row + i) * n + column + j] = entry;
      }
    }
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t end = row == column ? j : rows;
      for (int64_t i = 0; i < end; ++i) {
        c[(column + j) * n + row + i] = tile[static_cast<size_t>(i * kTile + j)];
      }
    }
  };
  parallel_items(threads, tiles, [&](int64_t row, int) {
    for (int64_t column = row; column < tiles; ++column) {
      mirror_tile(row * kTile, column * kTile);
    }
  });
}

}  // namespace tessera
