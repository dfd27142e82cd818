#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "base/round_up.h"
#include "ops/gemm/gemm_plan.h"
#include "tensor/alignment.h"
#include "tensor/shape.h"

namespace tessera {

// Grouped products on the processor. An expert's number of rows is known only at run time, but
// matrix products are prepared for fixed shapes. So each expert's rows are cut into pieces of
// kPieceRows rows (the last may be smaller), and products are prepared for each multiple of
// kPieceStep rows. A piece uses the smallest product that holds it. Each piece runs on one thread,
// several pieces at a time. For small matrices that is far faster than all threads on one product.

inline constexpr int64_t kPieceRows = 256;
inline constexpr int64_t kPieceStep = 16;

/// Rows [row, row + rows) of the routed rows. They all belong to one local expert.
struct RowPiece {
  int32_t expert = 0;
  int32_t row = 0;   ///< the first row
  int32_t rows = 0;  ///< the number of rows
};

/// Returns the largest number of pieces into which `rows` routed rows of `experts` experts can be
/// cut: each expert has at most one piece that is smaller than kPieceRows.
inline int64_t piece_bound(int64_t rows, int64_t experts) { return rows / kPieceRows + experts; }

/// Cuts the rows between the offsets [experts + 1] into pieces and writes them to `storage`, which
/// holds piece_bound() pieces. Returns the part that was written.
std::span<const RowPiece> cut_rows(std::span<const int32_t> offsets, std::span<RowPiece> storage);

/// The matrix products for every size of piece: the multiples of kPieceStep up to kPieceRows. The
/// rows of a piece are one of the product's dims: m, or k for a weight gradient.
class PieceProducts {
 public:
  /// Prepares `shape` with the dim `varying_dim` replaced by each size. No size exceeds `max_rows`,
  /// the number of all routed rows, because a product must not read rows past the end.
  PieceProducts(Runtime& runtime, GemmShape shape, int64_t GemmShape::*varying_dim,
                int64_t max_rows);
  /// Returns the scratch bytes of the product that needs the most.
  static int64_t workspace_bytes(const Target& target, GemmShape shape,
                                 int64_t GemmShape::*varying_dim, int64_t max_rows);

  /// Returns the size of the product for a piece of `rows` rows: the next multiple of kPieceStep,
  /// or `max_rows` if that is less.
  int64_t size(int64_t rows) const { return std::min(round_up(rows, kPieceStep), max_rows_); }
  /// Returns the product for a piece of `rows` rows, from 1 to kPieceRows.
  const Gemm& operator[](int64_t rows) const {
    return *products_[static_cast<size_t>((rows - 1) / kPieceStep)];
  }

 private:
  static constexpr size_t kSizes = kPieceRows / kPieceStep;
  /// Returns the size of the product for pieces of up to (index + 1) · kPieceStep rows.
  static int64_t size_at(size_t index, int64_t max_rows) {
    return std::min(static_cast<int64_t>(index + 1) * kPieceStep, max_rows);
  }

  int64_t max_rows_;
  std::array<const Gemm*, kSizes> products_;
};

/// The division of an operation's workspace: first a list of `pieces` pieces, then for each thread
/// an area for staged rows (copied before or after a product) and the product's scratch memory.
class PieceWorkspace {
 public:
  PieceWorkspace(int64_t pieces, int64_t staged_bytes, int64_t product_bytes)
      : pieces_(pieces),
        pieces_bytes_(aligned_bytes(pieces * static_cast<int64_t>(sizeof(RowPiece)))),
        staged_bytes_(aligned_bytes(staged_bytes)),
        product_bytes_(aligned_bytes(product_bytes)) {}

  int64_t bytes(int threads) const {
    return pieces_bytes_ + threads * (staged_bytes_ + product_bytes_);
  }
  std::span<RowPiece> pieces(std::span<std::byte> workspace) const {
    return {reinterpret_cast<RowPiece*>(workspace.data()), static_cast<size_t>(pieces_)};
  }
  std::byte* staged(std::span<std::byte> workspace, int thread) const {
    return workspace.data() + pieces_bytes_ + thread * (staged_bytes_ + product_bytes_);
  }
  std::byte* product(std::span<std::byte> workspace, int thread) const {
    return staged(workspace, thread) + staged_bytes_;
  }

 private:
  int64_t pieces_;
  int64_t pieces_bytes_;
  int64_t staged_bytes_;
  int64_t product_bytes_;
};

}  // namespace tessera
