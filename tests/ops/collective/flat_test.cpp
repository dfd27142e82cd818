#include "ops/collective/flat.h"

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/collective/convert.h"
#include "ops/update/kept_values.h"
#include "support/mesh_programs.h"
#include "support/refusal_of.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The pieces of these sizes over all levels of the data axis.
FlatPieces pieces_over_data(const Mesh& mesh, std::vector<int64_t> sizes) {
  return {{mesh.data().begin(), mesh.data().end()}, std::move(sizes)};
}

/// Numbers of which no two sums in another order are equal.
Tensor numbers_of_rank(int rank, int64_t elements) {
  Tensor tensor({elements}, DType::f32);
  for (int64_t i = 0; i < elements; ++i) {
    tensor.data<float>()[i] = std::sin(static_cast<float>(rank * 131 + i * 7 + 1));
  }
  return tensor;
}

struct FlatCase {
  MeshSizes mesh;
  std::vector<int64_t> sizes;
};
const std::vector<FlatCase> kFlatCases{{{.data = {1}}, {7}},
                                       {{.data = {3}}, {4, 0, 5}},
                                       {{.tensor = 2, .context = 2, .data = {2}}, {1, 12}},
                                       {{.data = {2, 3}}, {3, 0, 4, 5, 1, 7}},
                                       {{.context = 3, .data = {2, 2}}, {0, 11, 0, 2}},
                                       {{.context = 2, .data = {1, 3}}, {3, 3, 4}}};

/// A piece of a sum has the bits that take_sum_by_level() gives there, and the gathered pieces are
/// the whole.
TEST(FlatPiecesOfSums, HaveTheBitsOfTheWholeSum) {
  for (const FlatCase& of : kFlatCases) {
    for (const WireFormat wire : {WireFormat::fp32, WireFormat::bf16}) {
      const Mesh mesh(of.mesh);
      SCOPED_TRACE(mesh.text());
      const FlatPieces pieces = pieces_over_data(mesh, of.sizes);
      const int64_t elements = pieces.elements();
      const auto write = [&](Builder& builder) {
        Distribution addend;
        for (const Axis axis : mesh.axes_of(MeshView::dense)) addend = addend.with(axis, partial());
        const Spec spec{{elements}, DType::f32, addend};
        const Value whole = take_sum_by_level(builder, builder.state("a", spec),
                                              mesh.axes_of(MeshView::dense), {wire});
        builder.name(whole, "whole");
        builder.output(whole);
        const Value sum = builder.state("b", spec);
        const Value piece =
            take_piece_of_sum(builder, sum, pieces, 0, mesh.axes_of(MeshView::dense), {wire});
        EXPECT_EQ(builder.program().base(piece), sum);
        EXPECT_EQ(builder.spec(piece).distribution, pieces.distribution(Distribution()));
        builder.name(piece, "piece");
        builder.output(piece);
        const Value weight = builder.parameter("weight", {{elements}, DType::bf16, {}});
        const Value own = own_flat_piece(builder, weight, pieces);
        round_to_weights(builder, std::vector{piece}, std::vector{own});
        gather_pieces(builder, own, weight, pieces);
      };
      const MeshRun run(mesh, write, [&](int rank, const ValueInfo& value) {
        return value.name == "weight" ? Tensor() : numbers_of_rank(rank, elements);
      });
      for (int rank = 0; rank < mesh.ranks(); ++rank) {
        const auto whole = run.value(rank, "whole").values<float>();
        const auto piece = run.value(rank, "piece").values<float>();
        const ElementRun own = pieces.run_of(mesh, rank);
        ASSERT_EQ(std::ssize(piece), own.length);
        for (int64_t i = 0; i < own.length; ++i) {
          const float found = piece[static_cast<size_t>(i)];
          const float expected = whole[static_cast<size_t>(own.begin + i)];
          // The piece of a sum of rounded addends is f32, and the whole is rounded to be sent on.
          const bool rounds = wire == WireFormat::bf16 && mesh.ranks() > 1;
          EXPECT_EQ(rounds ? static_cast<float>(BFloat16(found)) : found, expected);
        }
        const auto weight = run.value(rank, "weight").values<BFloat16>();
        for (size_t i = 0; i < weight.size(); ++i) {
          EXPECT_EQ(static_cast<float>(weight[i]), static_cast<float>(BFloat16(whole[i])));
        }
      }
    }
  }
}

/// Scattering P bytes over n ranks of d nodes sends P(n-1)/n within them and P/n (d-1)/d among
/// them, as counted and as the operation says: half of what a sum for all takes. So does the
/// gather.
TEST(FlatPiecesOfSums, SendHalfOfWhatAWholeSumDoes) {
  const Mesh mesh({.data = {2, 3}});
  const Axis inner = mesh.data()[0], outer = mesh.data()[1];
  const FlatPieces pieces = pieces_over_data(mesh, std::vector<int64_t>(6, 8));
  const auto write = [&](Builder& builder) {
    const Distribution addend = Distribution().with(inner, partial()).with(outer, partial());
    take_piece_of_sum(builder, builder.state("sum", {{48}, DType::f32, addend}), pieces, 0,
                      mesh.data(), {});
    const Value weight = builder.parameter("weight", {{48}, DType::bf16, {}});
    gather_pieces(builder, own_flat_piece(builder, weight, pieces), weight, pieces);
  };
  const MeshRun run(mesh, write, [](int rank, const ValueInfo& value) {
    return value.name == "weight" ? Tensor() : numbers_of_rank(rank, 48);
  });
  std::map<int, double> counted, stated;
  for (int rank = 0; rank < 6; ++rank) {
    for (const Axis axis : {inner, outer}) {
      counted[axis.index] += static_cast<double>(run.received_bytes(rank, std::vector{axis}));
    }
  }
  for (const Node& node : run.program().nodes()) {
    for (const WireBytes& wire : node.operation->cost(run.program().specs(node.inputs), {}).wire) {
      stated[wire.axes.at(0).index] += 6 * wire.bytes;
    }
  }
  EXPECT_EQ(counted[inner.index], 6 * (48 * 4 / 2 + 48 * 2 / 2));
  EXPECT_EQ(counted[outer.index], 6 * (24 * 4 * 2 / 3 + 24 * 2 * 2 / 3));
  EXPECT_EQ(stated, counted);
}

TEST(FlatPiecesOfSums, RefuseWhatIsNoAddendOrNoPiece) {
  const Mesh mesh({.tensor = 2, .data = {2}});
  Program program(mesh);
  Builder builder(program);
  const FlatPieces pieces = pieces_over_data(mesh, {4, 4});
  const Value weight = builder.parameter("weight", {{8}, DType::f32, {}});
  EXPECT_THAT(
      refusal_of([&] { take_piece_of_sum(builder, weight, pieces, 0, mesh.data(), Wire{}); }),
      AllOf(HasSubstr("'weight' is invariant"), HasSubstr("expected partial")));
  const Value sum =
      builder.state("sum", {{8}, DType::f32, Distribution().with(mesh.data()[0], partial())});
  EXPECT_THAT(refusal_of([&] { own_flat_piece(builder, sum, pieces); }),
              AllOf(HasSubstr("'sum' is partial"), HasSubstr("expected invariant")));
  const Value other = builder.parameter("other", {{8}, DType::f32, {}});
  const Value piece = own_flat_piece(builder, other, pieces);
  EXPECT_THAT(refusal_of([&] { gather_pieces(builder, piece, weight, pieces); }),
              HasSubstr("expected a piece of 'weight'"));
  const Value taken = take_piece_of_sum(builder, sum, pieces, 0, mesh.data(), Wire{});
  EXPECT_THAT(refusal_of([&] { take_piece_of_sum(builder, sum, pieces, 0, mesh.data(), Wire{}); }),
              HasSubstr("its memory holds"));
  EXPECT_EQ(builder.spec(taken).shape, Shape{4});
}

}  // namespace
}  // namespace tessera::testing
