#include "ops/embedding/embedding.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "ops/elementwise/elementwise.h"
#include "ops/host_target.h"
#include "support/emulated.h"
#include "support/run_program.h"
#include "support/thread_counts.h"

namespace tessera {
namespace {

Tensor ids_tensor(const std::vector<int32_t>& ids) {
  Tensor tensor({static_cast<int64_t>(ids.size())}, DType::i32);
  std::copy(ids.begin(), ids.end(), tensor.data<int32_t>());
  return tensor;
}

TEST(Embedding, GradientOfRepeatedIdsIsTheirSum) {
  testing::check_gradients(
      [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        return {embedding(builder, in[0], builder.input("ids", {{6}, DType::i32, {}}))};
      },
      {{5, 3}},
      []() -> testing::FixedInputs {
        return {{"ids", ids_tensor({0, 4, 2, 4, 4, 1})}};
      });
}

TEST(Embedding, TakesRows) {
  Runtime runtime(host_target(2));
  Program program;
  Builder builder(program);
  const Value table = builder.parameter("table", {{7, 5}, DType::bf16, {}});
  const Value ids = builder.input("ids", {{3}, DType::i32, {}});
  const Value rows = embedding(builder, table, ids);
  builder.output(rows);
  testing::ProgramRun frame(program, runtime);
  const Tensor weights = testing::random_tensor({7, 5}, DType::bf16, "table");
  frame.bind(table, weights);
  frame.bind(ids, ids_tensor({6, 0, 6}));
  frame.run();
  for (const auto& [row, id] : std::vector<std::pair<int, int>>{{0, 6}, {1, 0}, {2, 6}}) {
    for (int h = 0; h < 5; ++h) {
      EXPECT_EQ(frame[rows].data<BFloat16>()[row * 5 + h].bits,
                weights.data<BFloat16>()[id * 5 + h].bits);
    }
  }
}

RC_GTEST_PROP(Embedding, EqualsANaiveLoop, ()) {
  const auto vocabulary = *rc::gen::inRange<int32_t>(1, 40);
  const auto hidden = *rc::gen::inRange<int64_t>(1, 300);
  const auto ids =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<int32_t>>(rc::gen::inRange(0, vocabulary)));
  const auto tokens = static_cast<int64_t>(ids.size());
  const testing::RunResult result = testing::run_program(
      [&](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        return {embedding(builder, in[0], builder.input("ids", {{tokens}, DType::i32, {}}))};
      },
      {{{vocabulary, hidden}}},
      {.threads = *rc::gen::inRange(1, 4), .fixed = {{"ids", ids_tensor(ids)}}});

  const auto random = [&](const Shape& shape, const std::string& name) {
    return testing::as_doubles(testing::random_tensor(shape, DType::f32, name));
  };
  const std::vector<double> table = random({vocabulary, hidden}, "input0");
  const std::vector<double> of_rows = random({tokens, hidden}, "seed0");
  const auto columns = static_cast<size_t>(hidden);
  std::vector<double> rows;
  std::vector<float> of_table(table.size());
  for (size_t t = 0; t < ids.size(); ++t) {
    const size_t first = static_cast<size_t>(ids[t]) * columns;
    for (size_t h = 0; h < columns; ++h) {
      rows.push_back(table[first + h]);
      of_table[first + h] += static_cast<float>(of_rows[t * columns + h]);
    }
  }
  RC_ASSERT(result.outputs[0] == rows);
  RC_ASSERT(result.gradients[0] == std::vector<double>(of_table.begin(), of_table.end()));
}

TEST(Embedding, BitsDoNotDependOnTheThreads) {
  // Ids that repeat, and more columns than eight threads take.
  constexpr int32_t kVocabulary = 37;
  constexpr int64_t kTokens = 401, kHidden = 530;
  std::vector<int32_t> ids;
  for (int32_t t = 0; t < kTokens; ++t) ids.push_back(t * t % kVocabulary);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    testing::expect_same_bits_on_any_threads(
        [&](Kernels kernels, int threads) {
          return testing::bits_of(testing::run_program(
              [&](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
                return {
                    embedding(builder, in[0], builder.input("ids", {{kTokens}, DType::i32, {}}))};
              },
              {{{kVocabulary, kHidden}}},
              {.dtype = dtype,
               .kernels = kernels,
               .threads = threads,
               .fixed = {{"ids", ids_tensor(ids)}}}));
        },
        testing::FastKernel::same_bits);
  }
}

TEST(Embedding, RefusesIdsThatAreNotIntegers) {
  Program program;
  Builder builder(program);
  const Value table = builder.parameter("table", {{7, 5}, DType::f32, {}});
  EXPECT_THROW(embedding(builder, table, builder.input("ids", {{3}, DType::f32, {}})),
               InternalError);
}

/// Few ids of many repeat more often than a warp has threads. A parameter's gradient is added to
/// its main gradient, and that of a computed table to zeros. Both are exactly the plain kernel's:
/// rows are added in the order of their positions everywhere.
RC_GTEST_PROP(Embedding, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const auto vocabulary = *rc::gen::element(1, 3, 200);
  const auto tokens = *rc::gen::inRange<int64_t>(1, 150);
  const auto hidden = *rc::gen::element<int64_t>(1, 37, 64, 300, 528);
  const auto ids = *rc::gen::container<std::vector<int32_t>>(static_cast<size_t>(tokens),
                                                             rc::gen::inRange(0, vocabulary));
  const bool computed = *rc::gen::arbitrary<bool>();
  const auto function = [=](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
    const Value table = computed ? scale(builder, in[0], 1.0) : in[0];
    return {embedding(builder, table, builder.input("ids", {{tokens}, DType::i32, {}}))};
  };
  const std::vector<testing::RunInput> inputs{{{vocabulary, hidden}}};
  testing::RunOptions options{.dtype = *rc::gen::element(DType::f32, DType::bf16),
                              .fixed = {{"ids", ids_tensor(ids)}}};
  testing::expect_device_equals([&](const std::optional<testing::Emulation>& emulation) {
    options.threads = 1;
    options.kernels = emulation ? Kernels::fast : Kernels::plain;
    options.emulation = emulation;
    return testing::run_program(function, inputs, options);
  });
}

}  // namespace
}  // namespace tessera
