#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <rapidcheck/gtest.h>

#include "comm/communicator.h"
#include "comm/piece_indices.h"
#include "comm/ranks_and_values.h"

namespace tessera {

inline DType any_sum_type() {
  return *rc::gen::element(DType::f64, DType::f32, DType::bf16, DType::i32);
}
inline DType any_moved_type() { return *rc::gen::element(DType::f32, DType::bf16, DType::u8); }
inline int any_group_size() { return *rc::gen::inRange(1, 9); }
inline int any_seed() { return *rc::gen::inRange(0, 1000); }

/// A whole that lies in pieces over a group, with the indices of the dim that each rank has.
struct Whole {
  Shape shape;
  TypeOnAxis type;
  int64_t extent = 0;
};

inline Whole any_whole(int ranks) {
  Whole whole;
  whole.type = sharded(*rc::gen::inRange(0, 3), {}, 0, *rc::gen::inRange(1, 4));
  Pieces& pieces = whole.type.pieces;
  pieces.kind = *rc::gen::element(PieceKind::even, PieceKind::zigzag, PieceKind::uneven);
  whole.extent = 2 * ranks * *rc::gen::inRange(0, 4);
  if (pieces.kind == PieceKind::uneven) {
    whole.extent = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      pieces.sizes.push_back(*rc::gen::inRange(0, 6));
      whole.extent += pieces.sizes.back();
    }
  }
  const auto other = [] { return *rc::gen::inRange<int64_t>(1, 5); };
  whole.shape =
      Shape{other(), other(), other()}.with_dim(whole.type.dim, whole.extent * whole.type.repeats);
  return whole;
}

/// The elements of a whole that a rank has, in the order of its piece, element by element.
inline std::vector<int64_t> elements_of(const Whole& whole, int ranks, int position) {
  const std::vector<int64_t> own = piece_indices(whole.extent, position, ranks, whole.type.pieces);
  std::vector<int64_t> result;
  const int dim = whole.type.dim;
  for (int64_t at = 0; at < (dim > 0 ? whole.shape[0] : 1) * (dim > 1 ? whole.shape[1] : 1); ++at) {
    for (int64_t repeat = 0; repeat < whole.type.repeats; ++repeat) {
      for (const int64_t index : own) {
        const int64_t inner = (dim < 2 ? whole.shape[2] : 1) * (dim < 1 ? whole.shape[1] : 1);
        for (int64_t i = 0; i < inner; ++i) {
          result.push_back(((at * whole.type.repeats + repeat) * whole.extent + index) * inner + i);
        }
      }
    }
  }
  return result;
}

inline Tensor piece_of(const Tensor& whole, std::span<const int64_t> elements) {
  Tensor result(Shape{static_cast<int64_t>(elements.size())}, whole.dtype());
  for (size_t i = 0; i < elements.size(); ++i) {
    set(result, static_cast<int64_t>(i), get(whole, elements[i]));
  }
  return result;
}

}  // namespace tessera
