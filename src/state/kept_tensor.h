#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/parameter.h"
#include "state/state_shard.h"
#include "tensor/tensor.h"

namespace tessera {

/// A tensor of a parameter that is kept between steps: the pieces of it that this rank holds, and
/// their memory.
struct KeptTensor {
  const ParameterSpec* parameter = nullptr;
  size_t index = 0;  ///< the index of the parameter in its list
  Kept kind = Kept::weight;
  DType dtype = DType::f32;
  /// Ranks whose coordinates agree on the axes that split it hold the same elements.
  Distribution distribution;
  std::vector<TensorPiece> pieces;  ///< the pieces of the whole that this rank holds
  /// The elements of the pieces, one piece after the other: in the shape of the only piece, or
  /// [elements] where ranks share the tensor out.
  Tensor memory;

  /// Returns the tensor's name in messages: "first_moment:layers.0.attention.query". A weight has
  /// the name of its parameter.
  std::string name() const;

  /// Calls visit(piece, memory) for each piece that this rank holds, with its memory in the piece's
  /// shape.
  template <typename Visit>
  void for_each_piece(Visit&& visit) const {
    int64_t offset = 0;
    for (const TensorPiece& piece : pieces) {
      visit(piece, memory.reshape({memory.elements()}).view(offset, piece.shape()));
      offset += piece.shape().elements();
    }
    TESSERA_CHECK(offset == memory.elements(), "{} has {} elements in pieces of {}", name(),
                  memory.elements(), offset);
  }
};

}  // namespace tessera
