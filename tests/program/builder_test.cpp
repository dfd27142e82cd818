#include "program/builder.h"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "program/view.h"
#include "support/refusal_of.h"
#include "support/whole_labels.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// An operation that does nothing but have `outputs` outputs, each of the first input's spec.
class Plain final : public Operation {
 public:
  explicit Plain(int outputs = 1) : outputs_(outputs) {}
  std::string_view name() const override { return "plain"; }
  std::string labels(std::span<const Spec> inputs) const override {
    return testing::whole_labels(
        inputs, std::vector<int>(static_cast<size_t>(outputs_), inputs[0].shape.rank()));
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    return std::vector<Spec>(static_cast<size_t>(outputs_), inputs[0]);
  }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  void run(const Execution&) const override {}

 private:
  int outputs_;
};

Spec spec(const Shape& shape, DType dtype = DType::f32) { return {shape, dtype, {}}; }

Value plain(Builder& builder, Value input) {
  return builder.apply_single(std::make_shared<Plain>(), {input});
}

class BuilderTest : public ::testing::Test {
 protected:
  Program program_;
  Builder builder_{program_};
};

TEST_F(BuilderTest, ValuesHaveTheirKindAndSpec) {
  const Value input = builder_.input("tokens", spec({4}, DType::i32));
  const Value weight = builder_.parameter("weight", spec({4, 2}));
  const Value cache = builder_.state("cache", spec({2}));
  const Value computed = plain(builder_, weight);
  EXPECT_EQ(program_.info(input).kind, ValueKind::input);
  EXPECT_EQ(program_.info(weight).kind, ValueKind::parameter);
  EXPECT_EQ(program_.info(cache).kind, ValueKind::state);
  EXPECT_EQ(program_.info(computed).kind, ValueKind::computed);
  EXPECT_EQ(builder_.spec(computed), spec({4, 2}));
  EXPECT_EQ(builder_.spec(computed).bytes(), 32);
  EXPECT_EQ(program_.find("weight"), weight);
  EXPECT_THROW(program_.find("nothing"), InternalError);
  EXPECT_THROW(program_.info(Value{}), InternalError);
  EXPECT_THROW(program_.info(Value{99}), InternalError);
}

TEST_F(BuilderTest, ScopesNameAndPlaceNodes) {
  const Value x = builder_.input("x", spec({4}));
  {
    const auto layer = builder_.layer_scope("layers.3", 3);
    {
      const auto attention = builder_.scope("attention", Block::attention);
      EXPECT_EQ(builder_.qualified("q"), "layers.3.attention.q");
      const Value q = plain(builder_, x);
      EXPECT_EQ(program_.info(q).name, "layers.3.attention.plain#0");
      builder_.name(q, "q");
      EXPECT_EQ(program_.info(q).name, "layers.3.attention.q");
    }
    plain(builder_, x);
  }
  plain(builder_, x);
  const auto& nodes = program_.nodes();
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_EQ(nodes[0].block, Block::attention);
  EXPECT_EQ(nodes[0].layer, 3);
  EXPECT_EQ(nodes[1].block, Block::other);
  EXPECT_EQ(nodes[1].layer, 3);
  EXPECT_EQ(nodes[2].layer, -1);
  EXPECT_EQ(program_.info(nodes[2].outputs[0]).name, "plain#2");
}

TEST_F(BuilderTest, OutputsOfOneNodeAreNumbered) {
  const Value x = builder_.input("x", spec({4}));
  const auto outputs = builder_.apply(std::make_shared<Plain>(2), {x});
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(program_.info(outputs[0]).name, "plain#0.0");
  EXPECT_EQ(program_.info(outputs[1]).name, "plain#0.1");
  EXPECT_EQ(program_.nodes()[0].outputs, outputs);
  EXPECT_THROW(builder_.apply_single(std::make_shared<Plain>(2), {x}), InternalError);
}

TEST_F(BuilderTest, AParameterHasOneMainGradientInTheWideType) {
  Spec sharded = spec({4, 2}, DType::bf16);
  sharded.distribution = sharded.distribution.with(Axis{5}, replicated());
  const Value weight = builder_.parameter("weight", sharded);
  const Value exact = builder_.parameter("exact", spec({2}, DType::f64));
  EXPECT_FALSE(program_.main_gradient(weight));
  const Value gradient = builder_.main_gradient(weight);
  EXPECT_EQ(builder_.main_gradient(weight), gradient);
  EXPECT_EQ(program_.main_gradient(weight), gradient);
  EXPECT_EQ(program_.info(gradient).kind, ValueKind::main_gradient);
  EXPECT_EQ(program_.info(gradient).name, "gradient:weight");
  EXPECT_EQ(builder_.spec(gradient).dtype, DType::f32);
  EXPECT_EQ(builder_.spec(gradient).distribution.on(Axis{5}), partial());
  EXPECT_EQ(builder_.spec(builder_.main_gradient(exact)).dtype, DType::f64);
  EXPECT_FALSE(builder_.main_gradient(builder_.input("x", spec({4}))));
}

TEST_F(BuilderTest, OutputsAndKeepsAreMarked) {
  const Value x = builder_.input("x", spec({4}));
  const Value y = plain(builder_, x);
  EXPECT_FALSE(program_.is_output(y));
  builder_.output(y);
  builder_.output(y);
  EXPECT_TRUE(program_.is_output(y));
  EXPECT_EQ(program_.outputs().size(), 1u);
  builder_.keep(y, Keep::layer);
  EXPECT_EQ(program_.info(y).keep, Keep::layer);
}

TEST_F(BuilderTest, TheBackwardPassBeginsWhereThePhaseChanges) {
  const Value x = builder_.input("x", spec({4}));
  {
    const auto scope = builder_.layer_scope("layers.1", 1);
    const auto block = builder_.scope("experts", Block::experts);
    plain(builder_, x);
  }
  plain(builder_, x);
  EXPECT_EQ(program_.forward_size(), 2);
  builder_.enter_block_of(program_.nodes()[0], Phase::backward);
  plain(builder_, x);
  EXPECT_EQ(program_.forward_size(), 2);
  EXPECT_EQ(program_.nodes()[2].phase, Phase::backward);
  EXPECT_EQ(program_.nodes()[2].block, Block::experts);
  EXPECT_EQ(program_.nodes()[2].layer, 1);
}

/// A pass that puts values in the places of others cannot put in what lies otherwise.
TEST_F(BuilderTest, ARewrittenBackwardPassReadsValuesOfTheSameSpec) {
  const Axis tensor = program_.mesh().tensor();
  const Value x = builder_.input("x", spec({4}));
  Spec split = spec({4});
  split.distribution = split.distribution.with(tensor, sharded(0));
  const Value other = builder_.input("other", split);
  const Value y = plain(builder_, x);
  builder_.enter_block_of(program_.nodes()[0], Phase::backward);
  const Value z = plain(builder_, y);
  const Value part = view(builder_, y, 1, {2});
  Value again;
  builder_.rewrite_backward([&](const Node& node) {
    if (!again) {
      builder_.enter_block_of(node, Phase::recompute);
      again = plain(builder_, x);
    }
    return std::vector{again};
  });
  ASSERT_EQ(program_.nodes().size(), 4u);
  EXPECT_EQ(program_.forward_size(), 1);
  EXPECT_EQ(program_.nodes()[1].phase, Phase::recompute);
  EXPECT_EQ(program_.nodes()[2].inputs, std::vector{again});
  EXPECT_EQ(program_.nodes()[2].outputs, std::vector{z});
  EXPECT_EQ(program_.base(part), again);
  EXPECT_THAT(testing::refusal_of([&] {
                builder_.rewrite_backward([&](const Node&) { return std::vector{other}; });
              }),
              AllOf(HasSubstr("'other' stands in the place of"), HasSubstr("tensor: sharded"),
                    HasSubstr("expected f32 [4] and invariant")));
}

TEST_F(BuilderTest, AnOperationWithoutARuleGivesNoGradients) {
  const Value x = builder_.input("x", spec({4}));
  const Value y = plain(builder_, x);
  const Node& node = program_.nodes()[0];
  const auto gradients = node.operation->gradient(builder_, node, std::vector{y});
  ASSERT_EQ(gradients.size(), 1u);
  EXPECT_FALSE(gradients[0]);
}

TEST(Names, OfBlocksAndPhases) {
  EXPECT_EQ(word(Block::feed_forward), "feed_forward");
  EXPECT_EQ(word(Phase::recompute), "recompute");
}

TEST(Runtime, HasOneCacheOfAType) {
  struct Counter {
    int value = 0;
  };
  Runtime runtime(Target{.threads = 2});
  runtime.cache<Counter>().value = 5;
  EXPECT_EQ(runtime.cache<Counter>().value, 5);
  Runtime other(Target{.threads = 2});
  EXPECT_EQ(other.cache<Counter>().value, 0);
}

}  // namespace
}  // namespace tessera
