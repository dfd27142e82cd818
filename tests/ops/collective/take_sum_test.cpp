#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bfloat16.h"
#include "engine/differentiate.h"
#include "ops/collective/convert.h"
#include "ops/elementwise/elementwise.h"
#include "program/view.h"
#include "support/mesh_programs.h"
#include "support/refusal_of.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A parameter that meets data on several axes is retyped once.
TEST(Use, ChangesAllAxesInOneNode) {
  const Mesh mesh({.tensor = 2, .context = 2, .data = {2}});
  const Axis t = mesh.tensor(), c = mesh.context(), d = mesh.data()[0];
  Program program(mesh);
  Builder builder(program);
  const Distribution rows = Distribution().with(t, sharded(0));
  const Value weight = builder.parameter("weight", {{4, 2}, DType::f32, rows});
  const Value used = use(builder, weight, std::vector{t, c, d});
  EXPECT_EQ(program.nodes().size(), 1U);
  EXPECT_EQ(program.base(used), weight);
  EXPECT_EQ(builder.spec(used).distribution, rows.with(c, replicated()).with(d, replicated()));
  EXPECT_EQ(use(builder, weight, std::vector{t}), weight);
  const Value like = use_like(builder, weight, used);
  EXPECT_EQ(builder.spec(like).distribution, builder.spec(used).distribution);
  EXPECT_EQ(program.nodes().size(), 2U);
}

/// The gradient of a computed value that is used on several axes is summed over all of them in one
/// call.
TEST(Use, HasOneSumAsItsGradient) {
  const Mesh mesh({.tensor = 2, .data = {2}});
  const std::vector<Axis> both{mesh.tensor(), mesh.data()[0]};
  const auto write = [&](Builder& builder) {
    const Value x = builder.input("x", {{2, 3}, DType::f64, {}});
    const Value used = use(builder, scale(builder, x, 2), both);
    Spec spec = builder.spec(used);
    spec.distribution = spec.distribution.dual();
    const Value seed = builder.input("seed", spec);
    const Value of_x = differentiate(builder, std::vector{Seed{used, seed, SeedKind::boundary}},
                                     std::vector{x})[0];
    builder.name(of_x, "of_x");
    builder.output(of_x);
  };
  const Tensor x = tensor_of({2, 3}, DType::f64, small_numbers(6, "x"));
  const Tensor seed = tensor_of({2, 3}, DType::f64, small_numbers(6, "seed"));
  const MeshRun run(mesh, write, give_parts(mesh, {{"x", x}, {"seed", seed}}));
  std::vector<double> expected = numbers_of(seed);
  for (double& number : expected) number *= 2;
  EXPECT_EQ(numbers_of(run.whole("of_x")), expected);
  int64_t received = 0;
  for (int rank = 0; rank < 4; ++rank) {
    received += run.received_bytes(rank, both);
    EXPECT_EQ(run.received_bytes(rank, std::vector{mesh.tensor()}), 0);
  }
  EXPECT_EQ(received, 4 * 2 * 6 * 8 * 3 / 4);
}

TEST(TakeSum, SumsOverAllAxesAtOnceInPlace) {
  const Mesh mesh({.tensor = 2, .context = 1, .data = {3}});
  const Axis t = mesh.tensor(), c = mesh.context(), d = mesh.data()[0];
  const auto write = [&](Builder& builder) {
    const Distribution sums =
        Distribution().with(t, partial()).with(c, partial()).with(d, partial());
    const Value sum = builder.state("sum", {{5}, DType::f32, sums});
    const Value taken = take_sum(builder, sum, std::vector{t, c, d});
    EXPECT_EQ(builder.program().base(taken), sum);
    EXPECT_TRUE(builder.spec(taken).distribution.invariant());
    const Value half = scale(builder, taken, 0.5);
    for (const auto& [value, name] : {std::pair(taken, "taken"), std::pair(half, "half")}) {
      builder.name(value, name);
      builder.output(value);
    }
  };
  const Tensor sum = tensor_of({5}, DType::f32, small_numbers(5, "sum"));
  const MeshRun run(mesh, write, give_parts(mesh, {{"sum", sum}}));
  EXPECT_EQ(numbers_of(run.whole("taken")), numbers_of(sum));
  std::vector<double> half = numbers_of(sum);
  for (double& number : half) number /= 2;
  EXPECT_EQ(numbers_of(run.whole("half")), half);
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(numbers_of(run.value(rank, "sum")), numbers_of(sum)) << "in its own memory";
  }
  double sent = 0, cost = 0;
  for (int rank = 0; rank < 6; ++rank) {
    sent += static_cast<double>(run.received_bytes(rank, std::vector{t, d}));
  }
  for (const Node& node : run.program().nodes()) {
    const Cost of = node.operation->cost(run.program().specs(node.inputs), {});
    for (const WireBytes& wire : of.wire) {
      EXPECT_EQ(wire.axes, (std::vector{t, d}));
      cost += wire.bytes;
    }
  }
  EXPECT_EQ(sent, 2 * 5 * 5 * 4);
  EXPECT_NEAR(cost, sent / 6, 1e-9);
}

/// What take_sum_by_level() makes of each rank's own addend, over all axes of the dense view.
class SummedByLevel {
 public:
  SummedByLevel(const MeshSizes& sizes, std::vector<std::vector<float>> addends, WireFormat wire)
      : mesh_(sizes),
        run_(
            mesh_,
            [&](Builder& builder) {
              Distribution sums;
              for (const Axis axis : mesh_.axes_of(MeshView::dense)) {
                sums = sums.with(axis, partial());
              }
              const auto elements = std::ssize(addends[0]);
              const Value sum = builder.state("sum", {{elements}, DType::f32, sums});
              const Value taken =
                  take_sum_by_level(builder, sum, mesh_.axes_of(MeshView::dense), {wire});
              EXPECT_EQ(builder.program().base(taken), sum);
              EXPECT_TRUE(builder.spec(taken).distribution.invariant());
              builder.name(taken, "taken");
              builder.output(taken);
            },
            [&](int rank, const ValueInfo&) {
              const std::vector<float>& own = addends[static_cast<size_t>(rank)];
              Tensor tensor({std::ssize(own)}, DType::f32);
              std::ranges::copy(own, tensor.data<float>());
              return tensor;
            }) {}

  const Mesh& mesh() const { return mesh_; }
  std::vector<double> of(int rank) const { return numbers_of(run_.value(rank, "taken")); }
  /// What all ranks got from each other over these axes.
  int64_t received(const std::vector<Axis>& axes) const {
    int64_t bytes = 0;
    for (int rank = 0; rank < mesh_.ranks(); ++rank) bytes += run_.received_bytes(rank, axes);
    return bytes;
  }
  /// What the operation says that all ranks send, by its levels.
  std::vector<double> costs() const {
    std::vector<double> result;
    for (const Node& node : run_.program().nodes()) {
      for (const WireBytes& wire :
           node.operation->cost(run_.program().specs(node.inputs), {}).wire) {
        result.push_back(wire.bytes * mesh_.ranks());
      }
    }
    return result;
  }

 private:
  Mesh mesh_;
  MeshRun run_;
};

/// Numbers of which no two sums in another order are equal.
std::vector<std::vector<float>> addends_of(int ranks, size_t elements) {
  std::vector<std::vector<float>> result;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<float>& own = result.emplace_back();
    for (size_t i = 0; i < elements; ++i) {
      own.push_back(std::sin(static_cast<float>(rank * 131 + static_cast<int>(i) * 7 + 1)));
    }
  }
  return result;
}

float rounded(float number) { return static_cast<float>(BFloat16(number)); }

/// The sum of numbers in their order, in f32. If they travel in bf16, they are rounded before it,
/// and it is rounded.
float sum_of(std::vector<float> numbers, WireFormat wire) {
  float sum = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const float number = wire == WireFormat::bf16 ? rounded(numbers[i]) : numbers[i];
    sum = i == 0 ? number : sum + number;
  }
  return wire == WireFormat::bf16 ? rounded(sum) : sum;
}

/// MegaScale-MoE, appendix A.1: n ranks of each of d nodes send 2P(n-1)/n within the nodes, and
/// 2P/n (d-1)/d between them. Sums in bf16 send half of it.
TEST(TakeSumByLevel, SumsWithinNodesAndThenAmongThem) {
  for (const WireFormat wire : {WireFormat::fp32, WireFormat::bf16}) {
    for (const int64_t elements : {int64_t{48}, int64_t{5}, int64_t{3001}}) {
      const std::vector<std::vector<float>> addends = addends_of(12, static_cast<size_t>(elements));
      const SummedByLevel summed({.tensor = 2, .data = {2, 3}}, addends, wire);
      for (size_t i = 0; i < addends[0].size(); ++i) {
        std::vector<float> of_nodes;
        for (size_t node = 0; node < 3; ++node) {
          std::vector<float> within;
          for (size_t rank = 4 * node; rank < 4 * node + 4; ++rank) {
            within.push_back(addends[rank][i]);
          }
          of_nodes.push_back(sum_of(within, wire));
        }
        const double expected = sum_of(of_nodes, wire);
        for (int rank = 0; rank < 12; ++rank) {
          ASSERT_EQ(summed.of(rank)[i], expected) << word(wire) << ", element " << i;
        }
      }
      const Mesh& mesh = summed.mesh();
      const int64_t bytes = elements * (wire == WireFormat::bf16 ? 2 : 4);
      const std::vector<Axis> node{mesh.tensor(), mesh.data()[0]};
      EXPECT_EQ(summed.received(node), 12 * 2 * bytes * 3 / 4);
      EXPECT_EQ(summed.received({mesh.data()[1]}), 12 * 2 * bytes / 4 * 2 / 3)
          << elements << " elements";
      EXPECT_THAT(summed.costs(),
                  ElementsAre(DoubleNear(12 * 2 * static_cast<double>(bytes) * 3 / 4, 1e-6),
                              DoubleNear(12 * 2 * static_cast<double>(bytes) / 4 * 2 / 3, 1e-6)));
    }
  }
}

/// A ring that adds in bf16 would lose each 1: 256 + 1 is 256 there.
TEST(TakeSumByLevel, AddsRoundedNumbersInFloat32) {
  std::vector<std::vector<float>> addends(8, {1.0F, 0.5F});
  addends[0] = {256.0F, 0.5F};
  const SummedByLevel summed({.data = {8}}, addends, WireFormat::bf16);
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_THAT(summed.of(rank), ElementsAre(rounded(263.0F), 4.0)) << rank;
  }
  EXPECT_GT(rounded(263.0F), 260);
}

/// Numbers that have no rounded neighbour stay what they are.
TEST(TakeSumByLevel, KeepsWhatIsNoNumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<std::vector<float>> addends(4, {1.0F, 1.0F, 1.0F});
  addends[3] = {infinity, -infinity, std::nanf("")};
  const SummedByLevel summed({.data = {2, 2}}, addends, WireFormat::bf16);
  EXPECT_EQ(summed.of(0)[0], infinity);
  EXPECT_EQ(summed.of(1)[1], -infinity);
  EXPECT_TRUE(std::isnan(summed.of(2)[2]));
}

TEST(TakeSum, OnOneRankIsARetype) {
  Program program;
  Builder builder(program);
  const Axis t = program.mesh().tensor(), d = program.mesh().data()[0];
  const Value sum =
      builder.state("sum", {{5}, DType::f64, Distribution().with(t, partial()).with(d, partial())});
  const Value taken = take_sum(builder, sum, std::vector{t, d});
  EXPECT_TRUE(builder.spec(taken).distribution.invariant());
  EXPECT_TRUE(segment_nodes(program, Segment::whole).empty());
  EXPECT_EQ(take_sum(builder, taken, {}), taken);
  EXPECT_THROW(take_sum(builder, taken, std::vector{t}), DistributionError);
}

/// What take_sum() says of a value whose memory has the sum already, and what a reader says.
TEST(TakeSum, LeavesNothingElseThatCouldBeRead) {
  for (const int ranks : {1, 2}) {
    Program program(Mesh({.data = {ranks}}));
    Builder builder(program);
    const Axis d = program.mesh().data()[0];
    const Distribution sums = Distribution().with(d, partial());
    const Value sum = builder.state("sum", {{32}, DType::f32, sums});
    const Value first = view(builder, sum, 0, {16});
    const Value second = view(builder, sum, 16, {16});
    builder.name(first, "first");
    const Value taken = take_sum(builder, first, std::vector{d});
    builder.name(taken, "taken");
    const auto names_both = [](std::string_view reader, std::string_view value) {
      return AllOf(StartsWith(fmt::format("{}: '{}' is data: partial", reader, value)),
                   HasSubstr("'taken'"), HasSubstr("invariant"));
    };
    EXPECT_THAT(refusal_of([&] { take_sum(builder, first, std::vector{d}); }),
                names_both(ranks > 1 ? "take_sum" : "retype", "first"));
    EXPECT_THAT(refusal_of([&] { scale(builder, first, 2); }), names_both("scale", "first"));
    EXPECT_THAT(refusal_of([&] { scale(builder, sum, 2); }), names_both("scale", "sum"));
    EXPECT_THAT(refusal_of([&] { builder.output(sum); }), names_both("output", "sum"));
    scale(builder, taken, 2);
    builder.output(taken);
    take_sum(builder, second, std::vector{d});
    const Value other = builder.state("other", {{4}, DType::f32, sums});
    builder.output(other);
    EXPECT_THAT(refusal_of([&] { take_sum(builder, other, std::vector{d}); }),
                StartsWith("output: 'other' is data: partial"));
  }
}

}  // namespace
}  // namespace tessera::testing
