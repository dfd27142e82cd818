#include <iostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/labels/cases.h"
#include "support/label_check.h"

namespace tessera::testing {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(OperationLabels, SayWhatTheKernelsDo) {
  for (const LabelCase& of : all_label_cases()) {
    LabelCheck check(of);
    EXPECT_THAT(check.wrong(), IsEmpty()) << of.operation << ": " << check.own_text();
  }
}

/// Claims that would be right and that no operation makes are no mistake, so they are only shown.
/// Most whole labels are seen to be wrong if they are split.
TEST(OperationLabels, ClaimAboutAllThatTheyCould) {
  size_t cases = 0, could_claim_more = 0;
  for (const LabelCase& of : all_label_cases()) {
    LabelCheck check(of);
    const std::vector<std::string> claims = check.could_claim();
    for (const std::string& claim : claims) {
      std::cout << of.operation << ": " << check.own_text() << ": " << claim << "\n";
    }
    ++cases;
    could_claim_more += claims.empty() ? 0 : 1;
  }
  EXPECT_LT(could_claim_more, cases / 5);
}

/// What a check finds in an operation whose labels, as it has them, are taken to be others.
std::vector<std::string> wrong_in(const std::string& operation, const std::string& labels,
                                  const std::string& taken) {
  for (const LabelCase& of : all_label_cases()) {
    if (of.operation != operation || LabelCheck(of).own_text() != labels) continue;
    return LabelCheck(of, taken).wrong();
  }
  return {"there is no such case"};
}

/// A piece in zigzag is of whole heads only if the head's channels are not inside, and so on.
TEST(OperationLabels, AreRefusedInZigzagWhereAnElementMayBeCut) {
  std::map<std::string, std::set<std::string>> refused;
  for (const LabelCase& of : all_label_cases()) {
    LabelCheck check(of);
    refused[check.own_text()] = check.refused_in_zigzag();
  }
  using Labels = std::set<std::string>;
  EXPECT_EQ(refused.at("(b s) (h d!), (b z!) (g d!), (b z!) (g d!), (b s), (b z!) -> "
                       "(b s) (h d), b h s; h=g"),
            (Labels{"b", "h"}));
  EXPECT_EQ(refused.at("~t (h d!), t r! -> t (h d)"), Labels{"h"});
  EXPECT_EQ(refused.at("~(E r) i, ~E o0 i, (E r) -> (E r) o0"), Labels{"E"});
  EXPECT_EQ(refused.at("~t i, ~o0 i -> t o0"), Labels{});
}

struct Mistake {
  std::string operation;
  std::string labels;
  std::string taken;
  std::string found;  ///< how one of the faults begins
};

TEST(LabelCheck, FindsLabelsThatShouldBeWhole) {
  const std::vector<Mistake> mistakes{
      {"rms_norm", "a channel!, channel! -> a channel!, a one!",
       "a channel, channel -> a channel, a one!", "channel split"},
      {"layer_norm_gradient",
       "a channel!, a one!, ~a channel!, channel!, a one! -> a channel!, channel",
       "a channel, a one!, ~a channel, channel, a one! -> a channel, channel", "channel split"},
      {"attention",
       "(b s) (h d!), (b z!) (g d!), (b z!) (g d!), (b s), (b z!) -> "
       "(b s) (h d), b h s; h=g",
       "(b s) (h d!), (b z) (g d!), (b z) (g d!), (b s), (b z) -> (b s) (h d), b h s; h=g",
       "z split"},
      {"attention", "(b s!) (h d!), (b z!) (g d!), (b z!) (g d!) -> (b s) (h d), b h s; h=g",
       "(b s) (h d!), (b z!) (g d!), (b z!) (g d!) -> (b s) (h d), b h s; h=g", "s split"},
      {"router_softmax", "n E! -> n E", "n E -> n E", "E split"},
      {"router_top_k", "n! E! -> n k, n k", "n E! -> n k, n k", "n split"},
      {"load_balance_loss", "~E!, E! -> u", "~E, E -> u", "E split"},
      {"step_counts", "E!, E! -> E", "E, E -> E", "E split"},
      {"rotary", "~t (h d!), t r! -> t (h d)", "~t (h d), t r! -> t (h d)", "d split"},
      {"token_counts", "n! k! -> E, f, b l", "n k! -> E, f, b l", "n split"},
      {"view", "~w0! w1! -> d0 d1", "~w0 w1! -> w0 d1", "w0 split"}};
  for (const auto& [operation, labels, taken, found] : mistakes) {
    EXPECT_THAT(wrong_in(operation, labels, taken), Contains(StartsWith(found)))
        << operation << ": " << taken;
  }
}

TEST(LabelCheck, FindsDimsThatAreNamedWrongly) {
  const std::vector<Mistake> mistakes{
      {"linear", "~t i, ~o0 i -> t o0", "~t i, ~o0 i -> t i", "i split"},
      {"linear_weight_gradient", "~t i, ~t o -> o i", "~t i, ~t o -> i o", "i split"},
      {"probability_sums", "~(s n) E -> s E", "~(n s) E -> s E", "s split"},
      {"set_counts", "(s n) k -> s E", "(n s) k -> s E", "s split"},
      {"attention", "(b s!) (h d!), (b z!) (g d!), (b z!) (g d!) -> (b s) (h d), b h s; h=g",
       "(b s!) (h d!), (b z!) (g d!), (b z!) (g d!) -> (b s) (h d), b h s", "h split"},
      {"grouped_linear", "~(E r) i, ~E o0 i, (E r) -> (E r) o0",
       "~(r E) i, ~E o0 i, (r E) -> (r E) o0", "E split"},
      {"rms_norm", "a (head channel!), channel! -> a (head channel!), a head",
       "a (channel! head), channel! -> a (channel! head), a head", "head split"},
      {"reduce_experts_gradient", "r! c, n! k!, r!, n! k!, ~n! c -> r c, n k",
       "r! c, n! k!, r!, n! k!, ~n! c -> r c, n c", "c split"},
      {"sum_of_squares", "f0 + f1 + f2 -> u; f0=f1=f2", "f0 + f1 + f2 -> u", "f0 split"}};
  for (const auto& [operation, labels, taken, found] : mistakes) {
    EXPECT_THAT(wrong_in(operation, labels, taken), Contains(StartsWith(found)))
        << operation << ": " << taken;
  }
}

TEST(LabelCheck, FindsOperandsThatAreNotLinear) {
  const std::vector<Mistake> mistakes{
      {"clamp", "a b -> a b", "~a b -> a b", "partial: operand 0"},
      {"clamp_gradient", "a b, ~a b -> a b", "~a b, ~a b -> a b", "partial: operand 0"},
      {"router_z_loss", "n E! -> u", "~n E! -> u", "partial: operand 0"},
      {"sum_of_squares", "f0 -> u", "~f0 -> u", "partial: operand 0"},
      {"probability_sums", "~n E + ~n E -> E", "~n E, ~n E -> E", "partial: operand 0"},
      {"linear", "~t i, o0 i, o1 i -> t o0, t o1; o0=o1", "~t i, ~o0 i, o1 i -> t o0, t o1; o0=o1",
       "partial: operand 1"},
      {"add", "~a b + ~a b -> a b", "~a b, ~a b -> a b", "partial: operand 0"},
      {"linear_cross_entropy", "t c!, v! c!, t, u! -> u, t, t, t c, v c",
       "t c!, v! c!, t, ~u! -> u, t, t, t c, v c", "partial: operand 3"},
      {"reduce_experts_gradient", "r! c, n! k!, r!, n! k!, ~n! c -> r c, n k",
       "~r! c, n! k!, r!, n! k!, n! c -> r c, n k", "partial: operand 0"}};
  for (const auto& [operation, labels, taken, found] : mistakes) {
    EXPECT_THAT(wrong_in(operation, labels, taken), Contains(StartsWith(found)))
        << operation << ": " << taken;
  }
}

/// Squares, whose rule by hand passes on the type of what is squared, sums not taken included.
class CarelessSquare final : public Operation {
 public:
  std::string_view name() const override { return "careless_square"; }
  std::string labels(std::span<const Spec>) const override { return "a -> a"; }
  HandRule hand_rule() const override {
    return [](Axis, std::span<const TypeOnAxis> inputs) {
      return std::vector<TypeOnAxis>(inputs.begin(), inputs.end());
    };
  }
  std::vector<Spec> infer(std::span<const Spec> inputs) const override {
    return {inputs.begin(), inputs.end()};
  }
  Cost cost(std::span<const Spec>, std::span<const Spec>) const override { return {}; }
  void run(const Execution& execution) const override {
    const auto x = execution.inputs[0].values<double>();
    for (size_t i = 0; i < x.size(); ++i) {
      execution.outputs[0].data<double>()[i] = x[i] * x[i];
    }
  }
};

TEST(LabelCheck, FindsARuleByHandThatPassesOnSums) {
  const LabelCase square{
      "careless_square", {{"a", 4}}, [](Builder& builder, const LabelRanges& of) {
        builder.apply(std::make_shared<CarelessSquare>(), {declared(builder, {of("a")})});
      }};
  EXPECT_THAT(LabelCheck(square).wrong(),
              ::testing::ElementsAre(StartsWith("partial: operand 0: result 0")));
}

}  // namespace
}  // namespace tessera::testing
