#include "model/parameter.h"

#include <cmath>
#include <numbers>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/refusal_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Below 1, nearly no normal number is within the cutoff; those that are nearly uniform there.
TEST(Initialize, TruncatesAtAnyCutoff) {
  for (const double cutoff : {1e-9, 0.3, 1.0, 2.0}) {
    const ParameterSpec spec{.name = "weights",
                             .shape = {50, 80},
                             .dtype = DType::f64,
                             .initialization = {.deviation = 1, .cutoff = cutoff}};
    const Tensor values(spec.shape, DType::f64);
    initialize(spec, 3, TensorPiece(spec.shape), values, 2);
    double sum = 0;
    double squares = 0;
    for (const double value : values.values<double>()) {
      ASSERT_LE(std::abs(value), cutoff * (1 + 1e-6));
      sum += value;
      squares += value * value;
    }
    const auto count = static_cast<double>(values.elements());
    // The variance of a normal number within the cutoff c: 1 - 2 c φ(c) / (2 Φ(c) - 1).
    const double density = std::exp(-cutoff * cutoff / 2) / std::sqrt(2 * std::numbers::pi);
    const double within = std::erf(cutoff / std::numbers::sqrt2);
    const double variance = cutoff < 0.01 ? cutoff * cutoff / 3 : 1 - 2 * cutoff * density / within;
    EXPECT_NEAR(squares / count, variance, 0.05 * variance) << cutoff;
    EXPECT_NEAR(sum / count, 0, 0.05 * std::sqrt(variance)) << cutoff;
  }
}

/// Every layout begins with the same model: the pieces of a parameter are those of its whole.
TEST(Initialize, PiecesHaveTheNumbersOfTheWhole) {
  const ParameterSpec spec{.name = "layers.0.attention.query",
                           .shape = {6, 8},
                           .dtype = DType::f32,
                           .initialization = {.deviation = 0.02, .cutoff = 2}};
  const Tensor whole(spec.shape, DType::f32);
  initialize(spec, 3, TensorPiece(spec.shape), whole, 1);
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

/// The norm and the sums of gradients take a unit as one value, so all of it lies alike.
TEST(ParameterList, RefusesParametersOfOneUnitThatLieOtherwise) {
  Program program(Mesh({.tensor = 2, .expert = 2}));
  Builder builder(program);
  ParameterList list;
  const auto declare = [&](std::string_view name, const Distribution& distribution) {
    return list.declare(builder, name, {4, 4}, distribution, DType::f32, ParameterRole::matrix, {},
                        "layers.0");
  };
  declare("dense", {});
  declare("again", {});
  for (const Distribution& other : {Distribution(MeshView::expert),
                                    Distribution().with(program.mesh().tensor(), replicated())}) {
    EXPECT_THAT(
        testing::refusal_of([&] { declare("odd", other); }),
        AllOf(StartsWith("'odd' would lie in the unit 'layers.0/f32/matrices', which is invariant"),
              HasSubstr(other.text(program.mesh())), HasSubstr("lie alike")));
  }
  declare("split", Distribution().with(program.mesh().tensor(), sharded(0)));
  EXPECT_EQ(list.units().size(), 2U);
}

}  // namespace
}  // namespace tessera
