#include "ops/attention/repeat_heads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/differentiate.h"
#include "ops/collective/convert.h"
#include "ops/rank_results.h"
#include "support/emulated.h"
#include "support/run_program.h"
#include "support/thread_counts.h"

namespace tessera {
namespace {

TEST(RepeatHeads, GradientsAgreeWithFiniteDifferences) {
  testing::check_gradients(
      [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        return {repeat_heads(builder, in[0], 2, 3)};
      },
      {{4, 6}});
}

/// Two heads of two columns, each three times.
TEST(RepeatHeads, CopiesOfAHeadFollowOneAnother) {
  const testing::RunResult result = testing::run_program(
      [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
        return {repeat_heads(builder, in[0], 2, 3)};
      },
      {{{2, 4}}}, {.backward = false});
  const std::vector<double> x =
      testing::as_doubles(testing::random_tensor({2, 4}, DType::f32, "input0"));
  const std::vector<double> expected{x[0], x[1], x[0], x[1], x[0], x[1],  //
                                     x[2], x[3], x[2], x[3], x[2], x[3],  //
                                     x[4], x[5], x[4], x[5], x[4], x[5],  //
                                     x[6], x[7], x[6], x[7], x[6], x[7]};
  EXPECT_EQ(result.outputs[0], expected);
}

/// The copies' gradients are 1 and three times 2^-8, which is half a unit of 1 in bf16: a sum that
/// is rounded after each of them stays 1.
TEST(RepeatHeads, AddsCopiesInTheAccumulationType) {
  Runtime runtime(host_target(1));
  Program program;
  Builder builder(program);
  const Value x = builder.parameter("x", {{1, 1}, DType::bf16, {}});
  const Value copies = repeat_heads(builder, x, 1, 4);
  builder.output(copies);
  const Value seed = builder.input("seed", builder.spec(copies));
  differentiate(builder, std::vector{Seed{copies, seed, SeedKind::boundary}});
  testing::ProgramRun run(program, runtime);
  const Tensor one({1, 1}, DType::bf16), sum({1, 1}, DType::f32), gradient({1, 4}, DType::bf16);
  const float of_copies[] = {1.0f, 0x1p-8f, 0x1p-8f, 0x1p-8f};
  for (int i = 0; i < 4; ++i) gradient.data<BFloat16>()[i] = static_cast<BFloat16>(of_copies[i]);
  one.fill_zero();
  sum.fill_zero();
  run.bind(x, one);
  run.bind(program.main_gradient(x), sum);
  run.bind(seed, gradient);
  run.run();
  // 1 + 3 · 2^-8 lies between 1 + 2^-7 and 1 + 2^-6, nearer to neither: the even one.
  EXPECT_EQ(*run[program.main_gradient(x)].data<float>(), 1 + 0x1p-6f);
}

RC_GTEST_PROP(RepeatHeads, TheDevicesKernelsAgreeWithThePlainOnes, ()) {
  const auto tokens = *rc::gen::inRange<int64_t>(1, 20);
  const auto heads = *rc::gen::inRange<int64_t>(1, 4);
  const auto head_dim = *rc::gen::element<int64_t>(1, 5, 8, 64);
  const auto times = *rc::gen::inRange<int64_t>(1, 5);
  testing::RunOptions options{.dtype = *rc::gen::element(DType::f32, DType::bf16)};
  testing::expect_device_equals([&](const std::optional<testing::Emulation>& emulation) {
    options.threads = 1;
    options.kernels = emulation ? Kernels::fast : Kernels::plain;
    options.emulation = emulation;
    return testing::run_program(
        [&](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
          return {repeat_heads(builder, in[0], head_dim, times)};
        },
        {{{tokens, heads * head_dim}}}, options);
  });
}

TEST(RepeatHeads, BitsDoNotDependOnTheThreads) {
  testing::expect_same_bits_on_any_threads(
      [&](Kernels kernels, int threads) {
        return testing::bits_of(testing::run_program(
            [](Builder& builder, std::span<const Value> in) -> std::vector<Value> {
              return {repeat_heads(builder, in[0], 16, 4)};
            },
            {{{300, 48}}}, {.dtype = DType::bf16, .kernels = kernels, .threads = threads}));
      },
      testing::FastKernel::same_bits);
}

/// Four ranks share two key heads: all have both, and each takes its own of four copies. The
/// gradient of a key head is the sum of those of its two ranks.
TEST(RepeatHeads, GiveEachRankItsOwn) {
  const Mesh mesh({.tensor = 4});
  const Axis t = mesh.tensor();
  const Tensor keys = testing::random_tensor({5, 12}, DType::f64, "keys");
  const Tensor seeds = testing::random_tensor({5, 24}, DType::f64, "seeds");
  const testing::MeshRun run(
      mesh,
      [&](Builder& builder) {
        const Value all =
            builder.input("keys", {{5, 12}, DType::f64, Distribution().with(t, replicated())});
        const Value own = convert(builder, repeat_heads(builder, all, 6, 2), t,
                                  Placement::replicated, sharded(1));
        testing::mark(builder, own, "own");
        const Value seed = builder.input("seeds", builder.spec(own));
        testing::mark(builder,
                      differentiate(builder, std::vector{Seed{own, seed, SeedKind::boundary}},
                                    std::vector{all})[0],
                      "of_keys");
      },
      testing::give_parts(mesh, {{"keys", keys}, {"seeds", seeds}}));
  const auto at = [](const Tensor& tensor, int64_t row, int64_t column) {
    return tensor.data<double>()[row * tensor.shape()[1] + column];
  };
  const Tensor of_keys = run.whole("of_keys");
  for (int64_t token = 0; token < 5; ++token) {
    for (int rank = 0; rank < 4; ++rank) {
      for (int64_t i = 0; i < 6; ++i) {
        EXPECT_EQ(at(run.value(rank, "own"), token, i), at(keys, token, rank / 2 * 6 + i));
      }
    }
    for (int64_t head = 0; head < 2; ++head) {
      for (int64_t i = 0; i < 6; ++i) {
        EXPECT_DOUBLE_EQ(at(of_keys, token, head * 6 + i),
                         at(seeds, token, head * 12 + i) + at(seeds, token, head * 12 + 6 + i));
      }
    }
  }
}

TEST(RepeatHeads, RefusesRowsThatAreNoHeads) {
  Program program;
  Builder builder(program);
  const Value x = builder.input("x", {{4, 6}, DType::f32, {}});
  EXPECT_THROW(repeat_heads(builder, x, 4, 2), InternalError);
  EXPECT_THROW(repeat_heads(builder, x, 2, 0), InternalError);
  const Value ids = builder.input("ids", {{4, 6}, DType::i32, {}});
  EXPECT_THROW(repeat_heads(builder, ids, 2, 2), InternalError);
}

}  // namespace
}  // namespace tessera
