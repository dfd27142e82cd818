#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "comm/piece_indices.h"
#include "engine/differentiate.h"
#include "ops/embedding/embedding.h"
#include "ops/rank_results.h"
#include "ops/support.h"
#include "support/emulated.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::MeshRun;
using testing::RankResults;
using testing::Wholes;

struct TableSize {
  int64_t tokens, vocabulary, hidden;
};

testing::WriteProgram embedding_program(const TableSize& size, DType dtype) {
  return [=](Builder& builder) {
    const Mesh& mesh = builder.program().mesh();
    const testing::HeadLayout layout(mesh, size.vocabulary);
    const int64_t tokens = size.tokens / mesh.size(layout.d);
    const Shape part = layout.rows_of(builder.program(), {size.vocabulary, size.hidden});
    const Value table = builder.parameter("table", {part, dtype, layout.vocabulary()});
    const Value ids = builder.input("ids", {{tokens}, DType::i32, layout.tokens(invariant())});
    const Value found = embedding(builder, table, ids);
    testing::mark(builder, found, "found");
    const Value seed =
        builder.input("seed", {{tokens, size.hidden}, dtype, layout.tokens(replicated())});
    differentiate(builder, std::vector{Seed{found, seed, SeedKind::boundary}});
  };
}

RankResults run_embedding(const MeshSizes& sizes, const TableSize& size, const Wholes& wholes,
                          DType dtype, Kernels kernels) {
  const Mesh mesh(sizes);
  const MeshRun run(mesh, embedding_program(size, dtype), testing::give_parts(mesh, wholes),
                    {.kernels = kernels});
  return testing::results_of(run, {"found", "gradient:table"});
}

TEST(SplitEmbedding, IsTheSumOfWhatTheRanksHave) {
  const TableSize size{.tokens = 10, .vocabulary = 12, .hidden = 5};
  // With four ranks the third has none of these ids.
  const Tensor ids = testing::ids_of({0, 11, 2, 2, 5, 3, 11, 2, 10, 5});
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const Wholes wholes{{"table", testing::random_tensor({12, 5}, dtype, "table")},
                        {"ids", ids},
                        {"seed", testing::random_tensor({10, 5}, dtype, "seed")}};
    for (const Kernels kernels : {Kernels::plain, Kernels::fast}) {
      const RankResults expected = run_embedding({}, size, wholes, dtype, kernels);
      for (int64_t token = 0; token < size.tokens; ++token) {  // rows of the table as they are
        const int64_t row = ids.data<int32_t>()[token];
        for (int64_t h = 0; h < size.hidden; ++h) {
          EXPECT_EQ(expected.at("found")[static_cast<size_t>(token * size.hidden + h)],
                    testing::numbers_of(wholes.at("table"))[static_cast<size_t>(row * 5 + h)]);
        }
      }
      for (const MeshSizes& sizes : testing::head_layouts()) {
        SCOPED_TRACE(Mesh(sizes).text());
        const RankResults found = run_embedding(sizes, size, wholes, dtype, kernels);
        // Over data, a token's gradients are added in another order.
        const double rounding = sizes.data[0] == 1 ? 0 : dtype == DType::f64 ? 1e-15 : 1e-6;
        testing::expect_results(found, expected, {.of_largest = rounding});
        EXPECT_EQ(found.at("found"), expected.at("found"));
      }
    }
  }
}

/// Two ranks have the rows 0-6 and 7-12 of 13; four have 4, 3, 3 and 3.
TEST(SplitEmbedding, TakesUnevenPieces) {
  const TableSize size{.tokens = 8, .vocabulary = 13, .hidden = 5};
  const Wholes wholes{{"table", testing::random_tensor({13, 5}, DType::f64, "table")},
                      {"ids", testing::ids_of({0, 12, 6, 7, 3, 4, 12, 9})},
                      {"seed", testing::random_tensor({8, 5}, DType::f64, "seed")}};
  const RankResults expected = run_embedding({}, size, wholes, DType::f64, Kernels::fast);
  for (const MeshSizes& sizes : testing::head_layouts()) {
    SCOPED_TRACE(Mesh(sizes).text());
    const RankResults found = run_embedding(sizes, size, wholes, DType::f64, Kernels::fast);
    testing::expect_results(found, expected, {.of_largest = 1e-15});
  }
}

TEST(SplitEmbedding, IsPartialAndItsGradientSplit) {
  const Mesh mesh({.tensor = 2, .data = {2}});
  Program program(mesh, 3);
  Builder builder(program);
  embedding_program({.tokens = 8, .vocabulary = 6, .hidden = 4}, DType::f32)(builder);
  EXPECT_EQ(program.spec(program.find("found")).distribution.text(mesh),
            "tensor: partial, data: sharded (dim 0, even)");
  EXPECT_EQ(program.spec(program.find("gradient:table")).distribution.text(mesh),
            "tensor: sharded (dim 0, even), data: partial");
}

/// An id that no rank has is no row of zeros.
TEST(SplitEmbedding, RefusesIdsThatTheWholeTableLacks) {
  const TableSize size{4, 6, 2};
  for (const MeshSizes& sizes : {MeshSizes{}, MeshSizes{.tensor = 2}, MeshSizes{.tensor = 3}}) {
    const auto run = [&](int32_t id) {
      Wholes wholes{{"ids", testing::ids_of(std::vector<int32_t>{5, 0, id, 1})}};
      for (const auto& [name, rows] : {std::pair("table", 6), std::pair("seed", 4)}) {
        wholes.emplace(name, testing::random_tensor({rows, 2}, DType::f64, name, 1));
      }
      run_embedding(sizes, size, wholes, DType::f64, Kernels::fast);
    };
    for (const int32_t id : {6, 7, -1}) {
      EXPECT_THAT(error_of([&] { run(id); }),
                  AllOf(HasSubstr("found"),
                        HasSubstr(fmt::format("the id of token 2 is {}; expected 0 to 5", id))));
    }
    run(5);
  }
}

RC_GTEST_PROP(SplitEmbedding, OnDevicesIdsOfOtherRanksGiveZeros, ()) {
  const auto hidden = *rc::gen::element<int64_t>(5, 64);
  const auto first = *rc::gen::inRange<int32_t>(0, 9);  // of the four rows that the rank has
  const auto ids = *rc::gen::container<std::vector<int32_t>>(8, rc::gen::inRange(0, 13));
  const auto function = [&](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
    const Value input = builder.input("ids", {{8}, DType::i32, {}});
    return {embedding_of_rows(builder, in[0], input, {.first = first, .all = 13})};
  };
  testing::RunOptions options{.dtype = *rc::gen::element(DType::f32, DType::bf16),
                              .fixed = {{"ids", testing::ids_of(ids)}}};
  testing::expect_device_equals([&](const std::optional<testing::Emulation>& emulation) {
    options.threads = 1;
    options.kernels = emulation ? Kernels::fast : Kernels::plain;
    options.emulation = emulation;
    const testing::RunResult result = testing::run_program(function, {{{4, hidden}}}, options);
    for (size_t i = 0; i < result.outputs[0].size(); ++i) {
      const int32_t id = ids[i / static_cast<size_t>(hidden)];
      EXPECT_EQ(result.outputs[0][i] == 0, id < first || id >= first + 4) << "id " << id;
    }
    return result;
  });
  RC_ASSERT(!::testing::Test::HasFailure());
}

TEST(SplitEmbedding, TakesConsecutiveRowsAlone) {
  const Mesh mesh({.tensor = 2});
  const auto first = [&](int rank, const Pieces& pieces) {
    Program program(mesh, rank);
    Builder builder(program);
    const Distribution rows = Distribution().with(mesh.tensor(), sharded(0, pieces));
    const Value table = builder.parameter("table", {{4, 2}, DType::f32, rows});
    return first_row(program, table);
  };
  EXPECT_EQ(first(0, {}), 0);
  EXPECT_EQ(first(1, {}), 4);
  EXPECT_EQ(first(1, {PieceKind::uneven, {3, 4}}), 3);
  EXPECT_EQ(first(1, {PieceKind::zigzag}), 2);  // its two chunks are neighbours
  EXPECT_THAT(error_of([&] { first(0, {PieceKind::zigzag}); }),
              AllOf(HasSubstr("the rows 1 and 6 of 'table'"), HasSubstr("zigzag"),
                    HasSubstr("expected consecutive rows")));
}

TEST(LogicalExtent, IsThatOfAllRanks) {
  const Mesh mesh({.tensor = 4, .data = {2}});
  const Axis t = mesh.tensor(), d = mesh.data()[0];
  const Distribution even = Distribution().with(d, sharded(0)).with(t, sharded(0));
  EXPECT_EQ(logical_extent(mesh, Distribution(), 0, 3), 3);
  EXPECT_EQ(logical_extent(mesh, even, 0, 3), 24);
  EXPECT_EQ(logical_extent(mesh, even, 1, 3), 3);
  const TypeOnAxis uneven = sharded(0, {PieceKind::uneven, {5, 1, 0, 2}});
  EXPECT_EQ(logical_extent(mesh, Distribution().with(d, sharded(0)).with(t, uneven), 0, 1), 16);
}

}  // namespace
}  // namespace tessera
