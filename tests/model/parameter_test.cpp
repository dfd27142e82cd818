#include "model/parameter.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

/// Every layout begins with the same model: the pieces of a parameter are those of its whole.
TEST(Initialize, PiecesHaveTheNumbersOfTheWhole) {
  const ParameterSpec spec{.name = "layers.0.attention.query",
                           .shape = {6, 8},
                           .dtype = DType::f32,
                           .initialization = {.deviation = 0.02, .cutoff = 2}};
  const Tensor whole(spec.shape, DType::f32);
  initialize(spec, 3, whole, 1);
  const Mesh mesh({.tensor = 2, .data = {3}});
  for (const int dim : {0, 1}) {
    const Distribution distribution =
        Distribution().with(mesh.tensor(), sharded(dim)).with(mesh.data()[0], sharded(0));
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      const TensorPiece piece(mesh, distribution, spec.shape, rank);
      const Tensor values(piece.shape(), DType::f32);
      initialize(spec, 3, piece, values, 2);
      for (int64_t i = 0; i < values.elements(); ++i) {
        ASSERT_EQ(values.data<float>()[i], whole.data<float>()[piece.element_of_whole(i)]);
      }
      EXPECT_THROW(initialize(spec, 3, piece, whole, 1), InternalError);
    }
  }
}

}  // namespace
}  // namespace tessera
