#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/parallel.h"
#include "base/transpose.h"
#include "ops/gemm/gemm.h"

namespace tessera {

/// The size of a product of a matrix with its own transpose.
struct SymmetricSize {
  int64_t n = 0;
  int64_t k = 0;
  DType dtype = DType::f32;
  int threads = 1;  ///< 1 for a product called from within a parallel region
};

/// The symmetric product C = A Aᵀ of a matrix A [n, k], on the processor (ZAYA1, section V-B1).
/// Each block of columns is computed down to the diagonal, by one matrix product. The part above
/// the diagonal is then copied below it, transposed. So a large product takes little more than half
/// of the FLOPs. The plain kernel and small products compute all of C at once. Below AVX-512, such
/// a C is symmetric but for rounding.
class SymmetricProduct {
 public:
  /// Prepares the product. It must not be called within a parallel region; the product may run
  /// there.
  SymmetricProduct(Runtime& runtime, const SymmetricSize& size);
  static int64_t workspace_bytes(const Target& target, const SymmetricSize& size);

  /// Computes C. T is the type that SymmetricSize::dtype names.
  template <typename T>
  void run(const T* a, T* c, std::byte* workspace) const {
    if (is_whole()) return run_block(blocks_[0], a, c, workspace);
    run_and_mirror(a, c, workspace,
                   [=, n = size_.n](int64_t i, int64_t j) { return c[i * n + j]; });
  }

  /// Computes C, then sets each c[i][j] to value(i, j). value() may read c[i][j], and must be
  /// symmetric if C is.
  template <typename T, typename Value>
  void run(const T* a, T* c, std::byte* workspace, const Value& value) const {
    if (!is_whole()) return run_and_mirror(a, c, workspace, value);
    run_block(blocks_[0], a, c, workspace);
    const int64_t n = size_.n;
    parallel_ranges(size_.threads, n, kTile, [&, n](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
#pragma GCC ivdep
        for (int64_t j = 0; j < n; ++j) c[i * n + j] = value(i, j);
      }
    });
  }

 private:
  static constexpr int64_t kTile = 64;  // rows and columns of a tile that is mirrored at once
  struct Block {
    const Gemm* product;
    int64_t first;  // column
    int64_t end;
  };

  /// Returns whether one product computes all of C.
  bool is_whole() const { return blocks_.size() == 1; }

  /// Computes C by blocks, and sets c[i][j] and c[j][i] to value(i, j) for all i <= j.
  template <typename T, typename Value>
  void run_and_mirror(const T* a, T* c, std::byte* workspace, const Value& value) const {
    run_blocks(a, c, workspace, [&](int64_t first, int64_t end) {
      for (int64_t column = first; column < end; column += kTile) {
        for (int64_t row = 0; row < column; row += kTile) set_pair(row, column, c, value);
        set_diagonal(column, c, value);
      }
    });
  }

  /// Computes C down to the diagonal. Calls finish(first, end) for ranges of computed columns,
  /// which hold each column once. Several threads may call it at a time.
  void run_blocks(const void* a, void* c, std::byte* workspace,
                  const std::function<void(int64_t first, int64_t end)>& finish) const;

  /// Computes one block of columns, down to the diagonal.
  void run_block(const Block& block, const void* a, void* c, std::byte* workspace) const;

  /// Sets a tile above the diagonal and its mirror image below.
  template <typename T, typename Value>
  void set_pair(int64_t row, int64_t column, T* c, const Value& value) const {
    const int64_t n = size_.n;
    const int64_t columns = std::min(kTile, n - column);
    std::array<T, kTile * kTile> tile;
    for (int64_t i = 0; i < kTile; ++i) {
#pragma GCC ivdep
      for (int64_t j = 0; j < columns; ++j) tile[i * kTile + j] = value(row + i, column + j);
      std::copy_n(&tile[i * kTile], columns, c + (row + i) * n + column);
    }
    transpose(kTile, columns, tile.data(), kTile, c + column * n + row, n);
  }

  /// Sets the tile on the diagonal that begins at row and column `begin`.
  template <typename T, typename Value>
  void set_diagonal(int64_t begin, T* c, const Value& value) const {
    const int64_t n = size_.n;
    const int64_t rows = std::min(kTile, n - begin);
    std::array<T, kTile * kTile> tile;
    std::array<T, kTile * kTile> below;
    for (int64_t i = 0; i < rows; ++i) {
#pragma GCC ivdep
      for (int64_t j = 0; j < rows; ++j) tile[i * kTile + j] = value(begin + i, begin + j);
    }
    transpose(rows, rows, tile.data(), kTile, below.data(), kTile);
    for (int64_t i = 0; i < rows; ++i) {
      T* const row = c + (begin + i) * n + begin;
      std::copy_n(&tile[i * kTile], rows, row);
      std::copy_n(&below[i * kTile], i, row);
    }
  }

  SymmetricSize size_;
  std::vector<Block> blocks_;
  int concurrent_blocks_ = 1;  // blocks that are computed at once, each by one thread
  int64_t rows_bytes_ = 0;     // of a block's transposed rows; 0 if none are transposed
  int64_t block_bytes_ = 0;    // of a block's scratch memory, with its transposed rows
};

}  // namespace tessera
