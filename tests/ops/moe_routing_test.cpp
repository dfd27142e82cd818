#include <numeric>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/random.h"
#include "ops/moe/routing.h"
#include "ops/moe/routing_kernels.h"
#include "ops/moe_program.h"
#include "ops/router/router.h"
#include "support/emulated.h"

namespace tessera {
namespace {

using testing::SmallProgram;

struct Routing {
  std::vector<int32_t> counts;
  std::vector<int32_t> offsets;
  std::vector<int32_t> block_offsets;
  std::vector<int32_t> input_indices;
  std::vector<int32_t> output_indices;
  bool operator==(const Routing&) const = default;
};

testing::Bits bits_of(const Routing& routing) {
  return testing::bits_of(routing.counts, routing.offsets, routing.block_offsets,
                          routing.input_indices, routing.output_indices);
}

Routing route(const Shape& shape, const std::vector<int32_t>& indices,
              const RoutingOptions& options, int threads = 2,
              const std::optional<testing::Emulation>& emulation = {}) {
  SmallProgram small(threads, Kernels::fast, emulation);
  const Value given = small.input<int32_t>(shape, indices);
  const TokenCounts counts = token_counts(small.builder(), given, options);
  const TokenIndices rows = token_indices(small.builder(), given, counts, options);
  small.run({counts.counts, counts.offsets, counts.block_offsets, rows.input_indices,
             rows.output_indices});
  return {small.read<int32_t>(counts.counts), small.read<int32_t>(counts.offsets),
          small.read<int32_t>(counts.block_offsets), small.read<int32_t>(rows.input_indices),
          small.read<int32_t>(rows.output_indices)};
}

/// The definition: expert by expert, the tokens in order.
Routing naive_route(const Shape& shape, const std::vector<int32_t>& indices,
                    const RoutingOptions& options) {
  const int64_t k = shape[1];
  Routing routing{.counts = std::vector<int32_t>(static_cast<size_t>(options.experts), 0),
                  .offsets = {0},
                  .block_offsets = {},
                  .input_indices = {},
                  .output_indices = std::vector<int32_t>(indices.size(), -1)};
  for (const int32_t expert : indices) ++routing.counts[static_cast<size_t>(expert)];
  const int64_t capacity = options.capacity_factor ? expert_capacity(*options.capacity_factor,
                                                                     shape[0], k, options.experts)
                                                   : shape.elements();
  for (int64_t block = 0; block < token_blocks(shape[0]); ++block) {
    const auto before = indices.begin() + block * kTokenBlock * k;
    for (int64_t local = 0; local < options.local_experts; ++local) {
      routing.block_offsets.push_back(
          static_cast<int32_t>(std::count(indices.begin(), before, options.first_expert + local)));
    }
  }
  for (int64_t local = 0; local < options.local_experts; ++local) {
    int64_t taken = 0;
    for (size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] != options.first_expert + local || taken++ >= capacity) continue;
      routing.output_indices[i] = static_cast<int32_t>(routing.input_indices.size());
      routing.input_indices.push_back(static_cast<int32_t>(static_cast<int64_t>(i) / k));
    }
    routing.offsets.push_back(static_cast<int32_t>(routing.input_indices.size()));
  }
  routing.input_indices.resize(indices.size(), -1);
  return routing;
}

/// k different experts for each token.
std::vector<int32_t> random_indices(int64_t tokens, int64_t k, int64_t experts, uint64_t seed) {
  std::vector<int32_t> indices;
  for (int64_t t = 0; t < tokens; ++t) {
    const Permutation order(static_cast<uint64_t>(experts),
                            seed * 1000003 + static_cast<uint64_t>(t));
    for (int64_t j = 0; j < k; ++j) {
      indices.push_back(static_cast<int32_t>(order(static_cast<uint64_t>(j))));
    }
  }
  return indices;
}

TEST(Routing, FourTokensOnOneRankAndOnTheSecondOfTwo) {
  const std::vector<int32_t> indices{0, 1, 1, 2, 0, 3, 2, 3};
  const Routing whole = route({4, 2}, indices, {.experts = 4, .local_experts = 4});
  EXPECT_EQ(whole.counts, (std::vector<int32_t>{2, 2, 2, 2}));
  EXPECT_EQ(whole.offsets, (std::vector<int32_t>{0, 2, 4, 6, 8}));
  EXPECT_EQ(whole.input_indices, (std::vector<int32_t>{0, 2, 0, 1, 1, 3, 2, 3}));
  EXPECT_EQ(whole.output_indices, (std::vector<int32_t>{0, 2, 3, 4, 1, 6, 5, 7}));
  const Routing second =
      route({4, 2}, indices, {.experts = 4, .first_expert = 2, .local_experts = 2});
  EXPECT_EQ(second.counts, whole.counts);
  EXPECT_EQ(second.offsets, (std::vector<int32_t>{0, 2, 4}));
  EXPECT_EQ(second.input_indices, (std::vector<int32_t>{1, 3, 2, 3, -1, -1, -1, -1}));
  EXPECT_EQ(second.output_indices, (std::vector<int32_t>{-1, -1, -1, 0, -1, 2, 1, 3}));
}

TEST(Routing, TokensBeyondTheCapacityAreDroppedInOrder) {
  // Capacity ceil(1.0 · 5 / 2) = 3: the fourth and fifth token of expert 1 go nowhere.
  const Routing routing =
      route({5, 1}, {1, 1, 1, 1, 1}, {.experts = 2, .local_experts = 2, .capacity_factor = 1.0});
  EXPECT_EQ(routing.counts, (std::vector<int32_t>{0, 5}));
  EXPECT_EQ(routing.offsets, (std::vector<int32_t>{0, 0, 3}));
  EXPECT_EQ(routing.input_indices, (std::vector<int32_t>{0, 1, 2, -1, -1}));
  EXPECT_EQ(routing.output_indices, (std::vector<int32_t>{0, 1, 2, -1, -1}));
}

TEST(Routing, CapacityRoundsUpButNotForRoundingErrors) {
  EXPECT_EQ(expert_capacity(1.0, 5, 1, 2), 3);
  EXPECT_EQ(expert_capacity(1.1, 100, 3, 3), 110);  // 1.1 * 100 is more than 110 in f64
  EXPECT_EQ(expert_capacity(1.25, 4096, 8, 64), 640);
  EXPECT_EQ(expert_capacity(0.001, 10, 1, 10), 1);
}

TEST(Routing, IndicesOfNoExpertArePassedOver) {
  // -1, and a class of the router that is no local expert (one that skips the experts).
  const Routing routing = route({3, 1}, {2, -1, 0}, {.experts = 3, .local_experts = 2});
  EXPECT_EQ(routing.counts, (std::vector<int32_t>{1, 0, 1}));
  EXPECT_EQ(routing.offsets, (std::vector<int32_t>{0, 1, 1}));
  EXPECT_EQ(routing.input_indices, (std::vector<int32_t>{2, -1, -1}));
  EXPECT_EQ(routing.output_indices, (std::vector<int32_t>{-1, -1, 0}));
}

TEST(Routing, ForcedUniformRoutingLoadsAllExpertsEqually) {
  SmallProgram small;
  const Value probabilities =
      small.input<float>({24, 6}, std::vector<float>(static_cast<size_t>(24 * 6), 0.5F));
  const RouterSelection selection =
      router_top_k(small.builder(), probabilities, {.k = 4, .forced_uniform = true});
  const TokenCounts counts =
      token_counts(small.builder(), selection.indices, {.experts = 6, .local_experts = 6});
  small.run({counts.counts});
  EXPECT_EQ(small.read<int32_t>(counts.counts), std::vector<int32_t>(6, 16));
}

RC_GTEST_PROP(Routing, AgreesWithTheDefinition, ()) {
  const auto tokens = *rc::gen::inRange<int64_t>(1, 300);
  const auto experts = *rc::gen::inRange<int64_t>(1, 12);
  const auto k = *rc::gen::inRange<int64_t>(1, experts + 1);
  const auto first = *rc::gen::inRange<int64_t>(0, experts);
  const auto local = *rc::gen::inRange<int64_t>(1, experts - first + 1);
  RoutingOptions options{.experts = experts, .first_expert = first, .local_experts = local};
  if (*rc::gen::arbitrary<bool>()) options.capacity_factor = *rc::gen::inRange(1, 20) / 8.0;
  const auto indices = random_indices(tokens, k, experts, *rc::gen::inRange<uint64_t>(0, 1000));
  RC_ASSERT(route({tokens, k}, indices, options) == naive_route({tokens, k}, indices, options));
}

RC_GTEST_PROP(Routing, WithoutDroppingTheRowsAreAPermutation, ()) {
  const auto tokens = *rc::gen::inRange<int64_t>(1, 300);
  const auto experts = *rc::gen::inRange<int64_t>(1, 12);
  const auto k = *rc::gen::inRange<int64_t>(1, experts + 1);
  const auto indices = random_indices(tokens, k, experts, *rc::gen::inRange<uint64_t>(0, 1000));
  const Routing routing =
      route({tokens, k}, indices, {.experts = experts, .local_experts = experts});
  std::vector<int32_t> rows = routing.output_indices;
  std::ranges::sort(rows);
  std::vector<int32_t> all(rows.size());
  std::iota(all.begin(), all.end(), 0);
  RC_ASSERT(rows == all);
  RC_ASSERT(routing.offsets.back() == static_cast<int32_t>(indices.size()));
  for (size_t i = 0; i < indices.size(); ++i) {
    const int32_t row = routing.output_indices[i];
    RC_ASSERT(routing.input_indices[static_cast<size_t>(row)] == static_cast<int32_t>(i) / k);
    const auto expert = static_cast<size_t>(indices[i]);
    RC_ASSERT(row >= routing.offsets[expert] && row < routing.offsets[expert + 1]);
  }
}

TEST(Routing, DoesNotDependOnTheThreads) {
  const auto indices = random_indices(5000, 4, 16, 1);
  const RoutingOptions options{.experts = 16, .local_experts = 16, .capacity_factor = 1.01};
  const Routing naive = naive_route({5000, 4}, indices, options);
  for (const int threads : {1, 2, 3, 5, 8}) {
    EXPECT_TRUE(route({5000, 4}, indices, options, threads) == naive) << threads << " threads";
  }
}

RC_GTEST_PROP(Routing, TheDevicesKernelsEqualThePlainOnes, ()) {
  const auto tokens = *rc::gen::inRange<int64_t>(1, 300);
  const auto experts =
      *rc::gen::oneOf(rc::gen::inRange<int64_t>(1, 12), rc::gen::element<int64_t>(8, 33, 64, 300));
  const auto k = *rc::gen::inRange<int64_t>(1, std::min<int64_t>(experts, 10) + 1);
  const auto first = *rc::gen::inRange<int64_t>(0, experts);
  const auto local = *rc::gen::inRange<int64_t>(1, experts - first + 1);
  RoutingOptions options{.experts = experts, .first_expert = first, .local_experts = local};
  if (*rc::gen::arbitrary<bool>()) options.capacity_factor = *rc::gen::inRange(1, 20) / 8.0;
  auto indices = random_indices(tokens, k, experts, *rc::gen::inRange<uint64_t>(0, 1000));
  const auto popular = static_cast<int32_t>(first);  // also loads that are not even
  const auto share = *rc::gen::inRange<size_t>(1, 4);
  for (size_t i = 0; share > 1 && i < indices.size(); i += share) indices[i] = popular;
  const auto of_none = *rc::gen::arbitrary<bool>();
  for (size_t i = 0; of_none && i < indices.size(); i += 7) {
    indices[i] = i % 2 == 0 ? -1 : static_cast<int32_t>(experts);
  }
  testing::expect_device_equals([&](const std::optional<testing::Emulation>& emulation) {
    return route({tokens, k}, indices, options, 1, emulation);
  });
}

/// Many token blocks, whose scan has several for each thread, and so many experts that few warps
/// have room for their counts.
TEST(Routing, TheDevicesKernelsEqualThePlainOnesOnLargeShapes) {
  for (const Shape& shape : {Shape{3000, 2}, Shape{70, 12}}) {
    const int64_t experts = shape[0] == 3000 ? 40 : 3000;
    const auto indices = random_indices(shape[0], shape[1], experts, 5);
    const RoutingOptions options{
        .experts = experts, .local_experts = experts - 1, .capacity_factor = 1.1};
    const Routing expected = naive_route(shape, indices, options);
    for (const int lanes : {32, 64}) {
      testing::expect_equal_bits_on_devices(
          lanes,
          [&](const testing::Emulation& device) {
            return route(shape, indices, options, 1, device);
          },
          [&](const Routing& routing) { EXPECT_TRUE(routing == expected) << shape.text(); });
    }
  }
}

TEST(Routing, RefusesExpertsThatAreNotThere) {
  Program program;
  Builder builder(program);
  const Value indices = builder.input("indices", {{4, 2}, DType::i32, {}});
  const Value floating = builder.input("floating", {{4, 2}, DType::f32, {}});
  EXPECT_THROW(token_counts(builder, floating, {.experts = 4, .local_experts = 4}), InternalError);
  EXPECT_THROW(token_counts(builder, indices, {.experts = 4, .local_experts = 0}), InternalError);
  EXPECT_THROW(
      token_counts(builder, indices, {.experts = 4, .first_expert = 2, .local_experts = 3}),
      InternalError);
  EXPECT_THROW(
      token_counts(builder, indices, {.experts = 4, .local_experts = 4, .capacity_factor = 0.0}),
      InternalError);
}

}  // namespace
}  // namespace tessera
