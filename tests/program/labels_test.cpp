#include "program/labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// An operand as text, written anew from what was read.
std::string text(const LabelledOperand& operand) {
  std::string result;
  if (operand.added) result += "+= ";
  if (operand.linear) result += "~";
  if (operand.shape_only) result += "?";
  for (const auto& dim : operand.dims) {
    std::string factors;
    for (const Label& label : dim) {
      if (!factors.empty()) factors += " ";
      factors += label.name + (label.whole ? "!" : "") + (label.opaque ? "*" : "");
    }
    result += dim.size() > 1 ? "(" + factors + ")" : factors;
    result += " ";
  }
  return result.substr(0, result.find_last_not_of(' ') + 1);
}

TEST(Labels, OfALinearMapWithABias) {
  const Labels labels = parse_labels("~t i, ~o i + ~o -> t o");
  ASSERT_EQ(labels.inputs.size(), 3U);
  EXPECT_EQ(text(labels.inputs[0]), "~t i");
  EXPECT_EQ(text(labels.inputs[1]), "~o i");
  EXPECT_EQ(text(labels.inputs[2]), "~o");
  EXPECT_THAT(labels.terms, ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  ASSERT_EQ(labels.outputs.size(), 1U);
  EXPECT_EQ(text(labels.outputs[0]), "t o");
}

TEST(Labels, OfAttention) {
  const Labels labels = parse_labels("(b s) (h d!), (b z!) (g d!) -> (b s) (h d!), (b s) h; h=g");
  EXPECT_EQ(text(labels.inputs[0]), "(b s) (h d!)");
  EXPECT_EQ(text(labels.inputs[1]), "(b z!) (g d!)");
  EXPECT_EQ(text(labels.outputs[1]), "(b s) h");
  EXPECT_EQ(labels.tied("g"), "h");
  EXPECT_EQ(labels.tied("h"), "h");
  EXPECT_EQ(labels.tied("z"), "z");
}

TEST(Labels, OfDualsAndScalars) {
  const Labels labels = parse_labels("~, ?n E! -> (n* k) E, += o2 i");
  EXPECT_EQ(text(labels.inputs[0]), "~");
  EXPECT_EQ(text(labels.inputs[1]), "?n E!");
  EXPECT_EQ(text(labels.outputs[0]), "(n* k) E");
  EXPECT_EQ(text(labels.outputs[1]), "+= o2 i");
}

TEST(Labels, ThatCannotBeReadAreQuoted) {
  for (const char* wrong : {"t i", "t i -> t (", "t -> ()", "t ; h -> t", "t -> t;", "t -> t o]",
                            "t [ -> t", "t -> t; h="}) {
    try {
      parse_labels(wrong);
      ADD_FAILURE() << wrong << " was read";
    } catch (const InternalError& error) {
      EXPECT_THAT(error.what(), HasSubstr(wrong));
    }
  }
}

}  // namespace
}  // namespace tessera
