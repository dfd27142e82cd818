#include <algorithm>
#include <cmath>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/differentiate.h"
#include "ops/loss/cross_entropy.h"
#include "ops/rank_results.h"
#include "support/emulated.h"
#include "support/error_of.h"
#include "tensor/dispatch.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::MeshRun;
using testing::RankResults;
using testing::Wholes;

struct Head {
  int64_t tokens = 0, vocabulary = 0, hidden = 0;
  DType dtype = DType::f64;
  double z = 0;
  Kernels kernels = Kernels::fast;
};

/// The loss with its gradients, and the loss alone.
testing::WriteProgram loss_program(const Head& head) {
  return [=](Builder& builder) {
    const Mesh& mesh = builder.program().mesh();
    const testing::HeadLayout layout(mesh, head.vocabulary);
    const int64_t tokens = head.tokens / mesh.size(layout.d);
    const Shape part = layout.rows_of(builder.program(), {head.vocabulary, head.hidden});
    const Value x =
        builder.input("x", {{tokens, head.hidden}, head.dtype, layout.tokens(replicated())});
    const Value weight = builder.parameter("weight", {part, head.dtype, layout.vocabulary()});
    const Value targets =
        builder.input("targets", {{tokens}, DType::i32, layout.tokens(invariant())});
    const Value seed = builder.input(
        "seed", {{1}, accumulation_dtype(head.dtype), Distribution().with(layout.d, replicated())});
    const CrossEntropy result =
        linear_cross_entropy_with_gradient(builder, x, weight, targets, seed, head.z);
    const CrossEntropy alone = linear_cross_entropy(builder, x, weight, targets, head.z);
    testing::mark(builder, result.loss, "loss");
    testing::mark(builder, result.token_loss, "token_loss");
    testing::mark(builder, alone.loss, "alone");
    testing::mark(builder, alone.token_loss, "token_loss_alone");
    testing::mark(builder,
                  differentiate(builder, std::vector{Seed{result.loss, seed}}, std::vector{x})[0],
                  "of_x");
  };
}

/// Every third token has no target; the others have one from `first` on.
Tensor targets_of(const Head& head, int64_t first = 0) {
  std::vector<int32_t> targets;
  for (int64_t t = 0; t < head.tokens; ++t) {
    const int64_t any = first + (t * 7 + 3) % (head.vocabulary - first);
    targets.push_back(t % 3 == 2 ? -1 : static_cast<int32_t>(any));
  }
  return testing::ids_of(targets);
}

/// Numbers that bf16 holds, so that all types begin with the same ones.
Wholes wholes_of(const Head& head, const Tensor& targets, double deviation = 1) {
  const auto of_type = [&](const Shape& shape, const std::string& name) {
    Tensor result(shape, head.dtype);
    convert(testing::random_tensor(shape, DType::bf16, name, deviation), result);
    return result;
  };
  const Tensor seed({1}, accumulation_dtype(head.dtype));
  dispatch_wide(seed.dtype(), [&](auto type) { *seed.data<decltype(type)>() = 0.625; });
  return {{"x", of_type({head.tokens, head.hidden}, "x")},
          {"weight", of_type({head.vocabulary, head.hidden}, "weight")},
          {"targets", targets},
          {"seed", seed}};
}

RankResults run_loss(const MeshSizes& sizes, const Head& head, const Wholes& wholes) {
  const Mesh mesh(sizes);
  const MeshRun run(mesh, loss_program(head), testing::give_parts(mesh, wholes),
                    {.kernels = head.kernels});
  const RankResults results = results_of(
      run, {"loss", "token_loss", "alone", "token_loss_alone", "of_x", "gradient:weight"});
  EXPECT_EQ(results.at("alone"), results.at("loss"));
  EXPECT_EQ(results.at("token_loss_alone"), results.at("token_loss"));
  return results;
}

TEST(SplitCrossEntropy, IsThatOfOneRank) {
  // Of 1100 tokens a chunk has 1024.
  for (const auto& [tokens, vocabulary, hidden] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {2, 4, 1}, {38, 36, 7}, {38, 37, 7}, {1100, 131, 5}}) {
    Head head{.tokens = tokens, .vocabulary = vocabulary, .hidden = hidden, .z = 1e-2};
    for (const int64_t first : {int64_t{0}, vocabulary - 1}) {  // the last rank has all targets
      const Tensor targets = targets_of(head, first);
      head.dtype = DType::f64;
      const RankResults expected = run_loss({}, head, wholes_of(head, targets));
      for (const MeshSizes& sizes : testing::head_layouts()) {
        SCOPED_TRACE(fmt::format("{} tokens, {}", tokens, Mesh(sizes).text()));
        head.dtype = DType::f64;
        testing::expect_results(run_loss(sizes, head, wholes_of(head, targets)), expected,
                                {.of_largest = 1e-12});
        head.dtype = DType::f32;
        for (const Kernels kernels : {Kernels::plain, Kernels::fast}) {
          head.kernels = kernels;
          testing::expect_results(run_loss(sizes, head, wholes_of(head, targets)), expected,
                                  {.of_largest = 1e-5});
        }
      }
    }
  }
}

TEST(SplitCrossEntropy, BrainFloatStaysWithinItsRounding) {
  Head head{.tokens = 38, .vocabulary = 132, .hidden = 7, .z = 1e-3};
  const Tensor targets = targets_of(head);
  const RankResults expected = run_loss({}, head, wholes_of(head, targets));
  head.dtype = DType::bf16;
  for (const MeshSizes& sizes : testing::head_layouts()) {
    SCOPED_TRACE(Mesh(sizes).text());
    const RankResults found = run_loss(sizes, head, wholes_of(head, targets));
    for (const auto& [name, numbers] : expected) {
      // The logits are f32 sums of exact products. The logits' gradient is rounded to bf16, and so
      // is each rank's part of the gradient of x.
      const bool rounded = name == "of_x" || name == "gradient:weight";
      testing::expect_close(found.at(name), numbers, {.of_largest = rounded ? 16.0 / 512 : 1e-5},
                            name);
    }
  }
}

/// Logits of thousands, of which the largest of a row is on one rank alone: its exponential would
/// overflow, and those of all other ranks vanish.
TEST(SplitCrossEntropy, LargeLogitsDoNotOverflow) {
  Head head{.tokens = 16, .vocabulary = 24, .hidden = 6, .z = 1e-4};
  const Tensor targets = targets_of(head);
  for (const DType dtype : {DType::f64, DType::f32}) {
    head.dtype = dtype;
    const Wholes wholes = wholes_of(head, targets, 64);
    const RankResults one = run_loss({}, head, wholes);
    EXPECT_GT(one.at("loss")[0], 1e4);
    for (const MeshSizes& sizes : testing::head_layouts()) {
      const RankResults found = run_loss(sizes, head, wholes);
      for (const auto& [name, numbers] : found) {
        EXPECT_TRUE(std::ranges::all_of(numbers, [](double x) { return std::isfinite(x); }));
      }
      testing::expect_results(found, one, {.of_largest = dtype == DType::f64 ? 1e-12 : 1e-5});
    }
  }
}

TEST(SplitCrossEntropy, TokensWithoutTargetsAddNothing) {
  const Head head{.tokens = 6, .vocabulary = 8, .hidden = 3};
  const RankResults found = run_loss({.tensor = 2, .data = {2}}, head,
                                     wholes_of(head, testing::ids_of({-1, -1, -1, 2, -1, 7})));
  const RankResults expected =
      run_loss({}, head, wholes_of(head, testing::ids_of({-1, -1, -1, 2, -1, 7})));
  testing::expect_results(found, expected, {.of_largest = 1e-12});
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(found.at("of_x")[i], 0);  // all of the first data rank
}

TEST(SplitCrossEntropy, LiesAsItsRuleSays) {
  const Mesh mesh({.tensor = 2, .data = {2}});
  Program program(mesh, 1);
  Builder builder(program);
  loss_program({.tokens = 8, .vocabulary = 6, .hidden = 4, .dtype = DType::f32})(builder);
  const auto text = [&](const char* name) {
    return program.spec(program.find(name)).distribution.text(mesh);
  };
  EXPECT_EQ(text("loss"), "data: partial");
  EXPECT_EQ(text("token_loss"), "data: sharded (dim 0, even)");
  EXPECT_EQ(text("of_x"), "tensor: partial, data: sharded (dim 0, even)");
  EXPECT_EQ(text("gradient:weight"), "tensor: sharded (dim 0, even), data: partial");
}

/// Why a loss is refused.
template <typename Write>
std::string refused(Write&& write) {
  try {
    write();
  } catch (const DistributionError& error) {
    return error.what();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

/// A target that no rank has is no bare logarithm of a sum.
TEST(SplitCrossEntropy, RefusesTargetsThatTheVocabularyLacks) {
  for (const Kernels kernels : {Kernels::plain, Kernels::fast}) {
    const Head head{
        .tokens = 4, .vocabulary = 6, .hidden = 2, .dtype = DType::f32, .kernels = kernels};
    for (const int ranks : {1, 2, 3}) {
      const auto run = [&](int32_t target) {
        run_loss({.tensor = ranks}, head,
                 wholes_of(head, testing::ids_of(std::vector<int32_t>{5, -1, 0, target})));
      };
      for (const int32_t target : {6, 100, -2}) {
        EXPECT_THAT(
            error_of([&] { run(target); }),
            HasSubstr(fmt::format("the target of token 3 is {}; expected -1 to 5", target)));
      }
      run(-1);
    }
  }
}

/// Why a loss of values is refused that lie so over two tensor and two context ranks.
std::string refusal(const Distribution& x, const Distribution& weight, const Distribution& targets,
                    const Distribution& seed) {
  Program program(Mesh({.tensor = 2, .context = 2}));
  Builder builder(program);
  const Value of_x = builder.input("x", {{8, 4}, DType::f32, x});
  const Value of_weight = builder.parameter("weight", {{6, 4}, DType::f32, weight});
  const Value of_targets = builder.input("targets", {{8}, DType::i32, targets});
  const Value of_seed = builder.input("seed", {{1}, DType::f32, seed});
  return refused(
      [&] { linear_cross_entropy_with_gradient(builder, of_x, of_weight, of_targets, of_seed); });
}

TEST(SplitCrossEntropy, RefusesWhatLiesOtherwise) {
  const Mesh mesh({.tensor = 2, .context = 2});
  const Axis t = mesh.tensor(), c = mesh.context();
  const Distribution all;
  const Distribution split = all.with(t, sharded(0));
  const Distribution same = all.with(t, replicated());
  EXPECT_THAT(refusal(all, split, all, all),
              AllOf(HasSubstr("on tensor"), HasSubstr("linear_cross_entropy"),
                    HasSubstr("x must be replicated, not invariant")));
  EXPECT_THAT(refusal(split, split, all, all),
              HasSubstr("x must be replicated, not sharded (dim 0, even)"));
  EXPECT_THAT(refusal(same, split, split, all),
              HasSubstr("the targets must be invariant or replicated, not sharded"));
  EXPECT_THAT(refusal(same, split, all, same),
              HasSubstr("the loss's gradient must be invariant, not replicated"));
  EXPECT_THAT(refusal(same, all.with(t, sharded(0, {.kind = PieceKind::zigzag})), all, all),
              HasSubstr("expected consecutive rows"));
  EXPECT_THAT(
      refusal(same.with(c, replicated()), split.with(c, sharded(0)), all, all),
      AllOf(HasSubstr("split over 2 ranks of tensor and 2 of context"), HasSubstr("one axis")));
}

TEST(SplitCrossEntropy, RefusesOperandsThatDisagreeOnAnotherAxis) {
  const Mesh mesh({.tensor = 2, .context = 2, .data = {2}});
  const Axis t = mesh.tensor(), c = mesh.context(), d = mesh.data()[0];
  Program program(mesh);
  Builder builder(program);
  const Distribution rows = Distribution().with(t, replicated());
  const Distribution used = Distribution().with(d, replicated()).with(c, replicated());
  const Value x =
      builder.input("x", {{8, 4}, DType::f32, rows.with(d, sharded(0)).with(c, sharded(0))});
  const Value weight = builder.parameter("weight", {{6, 4}, DType::f32, used.with(t, sharded(0))});
  const Value targets = builder.input(
      "targets", {{8}, DType::i32, Distribution().with(c, sharded(0)).with(d, sharded(0))});
  EXPECT_THAT(refused([&] { linear_cross_entropy(builder, x, weight, targets); }),
              HasSubstr("label t is split in the order"));
}

/// Each rank sends, for every token, its largest logit, its sum of exponentials and its target's
/// logit, by all-reduces that go round a ring.
TEST(SplitCrossEntropy, SendsWhatItsCostSays) {
  const Mesh mesh({.tensor = 4});
  const Head head{.tokens = 1100, .vocabulary = 8, .hidden = 3, .dtype = DType::f32};
  const MeshRun run(mesh, loss_program(head),
                    testing::give_parts(mesh, wholes_of(head, targets_of(head))));
  double expected = 0;
  for (const Node& node : run.program().nodes()) {
    const Cost cost =
        node.operation->cost(run.program().specs(node.inputs), run.program().specs(node.outputs));
    for (const WireBytes& wire : cost.wire) {
      EXPECT_EQ(wire.axes, std::vector{mesh.tensor()});
      expected += wire.bytes;
    }
  }
  EXPECT_EQ(expected, 2 * (1100 * 3 * 4) * 2.0 * 3 / 4);  // two losses of f32
  int64_t sent = 0;
  for (int rank = 0; rank < 4; ++rank) {
    sent += run.received_bytes(rank, std::vector{mesh.tensor()}, Lane::compute);
  }
  EXPECT_EQ(static_cast<double>(sent) / 4, expected);
}

}  // namespace
}  // namespace tessera
