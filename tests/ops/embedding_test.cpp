#include "ops/embedding/embedding.h"

#include <gtest/gtest.h>

#include "support/gradient_check.h"

namespace tessera {
namespace {

Tensor ids_tensor(MemoryPool& pool, const std::vector<int32_t>& ids) {
  Tensor tensor(pool, {static_cast<int64_t>(ids.size())}, DType::i32);
  std::copy(ids.begin(), ids.end(), tensor.data<int32_t>());
  return tensor;
}

TEST(Embedding, GradientOfRepeatedIdsIsTheirSum) {
  testing::check_gradients(
      [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        return {embedding(builder, in[0], builder.input("ids", {{6}, DType::i32, {}}))};
      },
      {{5, 3}},
      [](MemoryPool& pool) -> testing::FixedInputs {
        return {{"ids", ids_tensor(pool, {0, 4, 2, 4, 4, 1})}};
      });
}

TEST(Embedding, TakesRows) {
  MemoryPool pool;
  Context context(2, Kernels::fast, &pool);
  Program program;
  Builder builder(program);
  const Value table = builder.parameter("table", {{7, 5}, DType::bf16, {}});
  const Value ids = builder.input("ids", {{3}, DType::i32, {}});
  const Value rows = embedding(builder, table, ids);
  builder.output(rows);
  Frame frame(program);
  const Tensor weights = testing::random_tensor(pool, {7, 5}, DType::bf16, "table");
  frame.bind(table, weights);
  frame.bind(ids, ids_tensor(pool, {6, 0, 6}));
  Executor(program, context).run(frame);
  for (const auto& [row, id] : std::vector<std::pair<int, int>>{{0, 6}, {1, 0}, {2, 6}}) {
    for (int h = 0; h < 5; ++h) {
      EXPECT_EQ(frame[rows].data<BFloat16>()[row * 5 + h].bits,
                weights.data<BFloat16>()[id * 5 + h].bits);
    }
  }
}

TEST(Embedding, RefusesIdsThatAreNotIntegers) {
  Program program;
  Builder builder(program);
  const Value table = builder.parameter("table", {{7, 5}, DType::f32, {}});
  EXPECT_THROW(embedding(builder, table, builder.input("ids", {{3}, DType::f32, {}})),
               InternalError);
}

}  // namespace
}  // namespace tessera
