#include "ops/moe/row_pieces.h"

#include <algorithm>

#include "tensor/alignment.h"

namespace tessera {

std::span<const RowPiece> cut_rows(std::span<const int32_t> offsets, std::span<RowPiece> storage) {
  size_t count = 0;
  for (size_t expert = 0; expert + 1 < offsets.size(); ++expert) {
    const int64_t end = offsets[expert + 1];
    for (int64_t row = offsets[expert]; row < end; row += kPieceRows) {
      storage[count++] = {static_cast<int32_t>(expert), static_cast<int32_t>(row),
                          static_cast<int32_t>(std::min(kPieceRows, end - row))};
    }
  }
  return storage.first(count);
}

PieceProducts::PieceProducts(Runtime& runtime, GemmShape shape, int64_t GemmShape::*varying_dim,
                             int64_t max_rows)
    : max_rows_(max_rows) {
  for (size_t i = 0; i < kSizes; ++i) {
    shape.*varying_dim = size_at(i, max_rows);
    products_[i] = &prepare_gemm(runtime, shape);
  }
}

int64_t PieceProducts::workspace_bytes(const Target& target, GemmShape shape,
                                       int64_t GemmShape::*varying_dim, int64_t max_rows) {
  int64_t bytes = 0;
  for (size_t i = 0; i < kSizes; ++i) {
    shape.*varying_dim = size_at(i, max_rows);
    bytes = std::max(bytes, gemm_workspace_bytes(target, shape));
  }
  return bytes;
}

int64_t PieceProducts::size(int64_t rows) const {
  return std::min((rows + kPieceStep - 1) / kPieceStep * kPieceStep, max_rows_);
}

const Gemm& PieceProducts::operator[](int64_t rows) const {
  return *products_[static_cast<size_t>((rows - 1) / kPieceStep)];
}

PieceWorkspace::PieceWorkspace(int64_t pieces, int64_t staged_bytes, int64_t product_bytes)
    : pieces_(pieces),
      pieces_bytes_(aligned_bytes(pieces * static_cast<int64_t>(sizeof(RowPiece)))),
      staged_bytes_(aligned_bytes(staged_bytes)),
      product_bytes_(aligned_bytes(product_bytes)) {}

int64_t PieceWorkspace::bytes(int threads) const {
  return pieces_bytes_ + threads * (staged_bytes_ + product_bytes_);
}

std::span<RowPiece> PieceWorkspace::pieces(std::span<std::byte> workspace) const {
  return {reinterpret_cast<RowPiece*>(workspace.data()), static_cast<size_t>(pieces_)};
}

std::byte* PieceWorkspace::staged(std::span<std::byte> workspace, int thread) const {
  return workspace.data() + pieces_bytes_ + thread * (staged_bytes_ + product_bytes_);
}

std::byte* PieceWorkspace::product(std::span<std::byte> workspace, int thread) const {
  return staged(workspace, thread) + staged_bytes_;
}

}  // namespace tessera
