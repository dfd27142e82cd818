#include "ops/moe/row_pieces.h"

#include <algorithm>

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

}  // namespace tessera
