#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tessera {

namespace transposition {

/// The side of the squares that transpose() cuts a matrix into: the number of entries in a vector
/// of 16 bytes. Every processor has instructions for such vectors.
template <typename T>
constexpr int64_t kSide = 16 / static_cast<int64_t>(sizeof(T));

/// The vector type of 16 bytes whose entries have this many bytes.
template <size_t bytes>
struct VectorOf;
template <>
struct VectorOf<2> {
  using Type = uint16_t __attribute__((vector_size(16)));
};
template <>
struct VectorOf<4> {
  using Type = uint32_t __attribute__((vector_size(16)));
};
template <>
struct VectorOf<8> {
  using Type = uint64_t __attribute__((vector_size(16)));
};

/// Returns the lower (or upper) halves of two vectors, interleaved: first[0], second[0], first[1],
/// second[1], ...
template <bool upper, typename Vector, size_t... lane>
Vector interleave(Vector first, Vector second, std::index_sequence<lane...>) {
  constexpr size_t kLanes = sizeof...(lane);
  constexpr size_t kBegin = upper ? kLanes / 2 : 0;
  return __builtin_shufflevector(first, second, (kBegin + lane / 2 + (lane % 2) * kLanes)...);
}

/// Transposes a square of kSide rows and columns in registers. Each pass interleaves row i of the
/// upper half with row i of the lower half, for all i, and so doubles the number of rows that a
/// vector mixes. After log2(kSide) passes the square is transposed.
template <typename T>
void transpose_square(const T* from, int64_t from_stride, T* to, int64_t to_stride) {
  constexpr int64_t kRows = kSide<T>;
  constexpr auto kLaneIndices = std::make_index_sequence<static_cast<size_t>(kRows)>();
  using Vector = typename VectorOf<sizeof(T)>::Type;
  Vector rows[kRows];
  for (int64_t i = 0; i < kRows; ++i) std::memcpy(&rows[i], from + i * from_stride, sizeof(Vector));
  for (int64_t mixed_rows = 1; mixed_rows < kRows; mixed_rows *= 2) {
    Vector next[kRows];
    for (int64_t i = 0; i < kRows / 2; ++i) {
      next[2 * i] = interleave<false>(rows[i], rows[i + kRows / 2], kLaneIndices);
      next[2 * i + 1] = interleave<true>(rows[i], rows[i + kRows / 2], kLaneIndices);
    }
    for (int64_t i = 0; i < kRows; ++i) rows[i] = next[i];
  }
  for (int64_t i = 0; i < kRows; ++i) {
    std::memcpy(static_cast<void*>(to + i * to_stride), &rows[i], sizeof(Vector));
  }
}

}  // namespace transposition

/// Writes the transposed `from` [rows, columns] to `to` [columns, rows], for types of 2, 4 or 8
/// bytes: to[j, i] = from[i, j]. A stride is the distance between rows, in entries. Both matrices
/// should fit in the first-level cache. Whole squares are transposed in registers, the entries
/// beyond them one by one.
template <typename T>
void transpose(int64_t rows, int64_t columns, const T* from, int64_t from_stride, T* to,
               int64_t to_stride) {
  constexpr int64_t kSide = transposition::kSide<T>;
  const int64_t whole_rows = rows - rows % kSide;
  const int64_t whole_columns = columns - columns % kSide;
  for (int64_t j = 0; j < whole_columns; j += kSide) {
    for (int64_t i = 0; i < whole_rows; i += kSide) {
      transposition::transpose_square(from + i * from_stride + j, from_stride,
                                      to + j * to_stride + i, to_stride);
    }
  }
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = j < whole_columns ? whole_rows : 0; i < rows; ++i) {
      to[j * to_stride + i] = from[i * from_stride + j];
    }
  }
}

}  // namespace tessera
