#include "program/label_rules.h"

#include <optional>
#include <span>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "program/derive.h"

namespace tessera {
namespace {

/// The rules of distribution.h's operations, and of others that are built of several terms.
const std::vector<std::pair<std::string, std::string>>& operations() {
  static const std::vector<std::pair<std::string, std::string>> all{
      {"~t i, ~o i -> t o",
       "split stays: t, o; split leaves a sum: i; may be a sum: operand 1 or 2"},
      {"~t i, ~o i + ~o -> t o",
       "split stays: t, o; whole: i; may be a sum: operand 1 or 2, with 3"},
      {"t c!, c! -> t c", "split stays: t; whole: c"},
      {"~v c, t -> t c", "split stays: c, t; split leaves a sum: v; may be a sum: operand 1"},
      {"t (h d!), z! (g d!) -> t (h d); h=g", "split stays: t, h = g; whole: d, z"},
      {"n E! -> n k", "split stays: n; whole: E"},
      {"(E r) i, ~E o i -> (E r) o",
       "split stays: E, r, o; split leaves a sum: i; may be a sum: operand 2"},
      {"~, ?n E -> n E", "split stays: n, E; may be a sum: operand 1"},
      {"~t o, t i -> += o i", "split stays: o, i; split leaves a sum: t; may be a sum: operand 1"},
  };
  return all;
}

TEST(LabelRules, SayWhatIsSplitSummedAndWhole) {
  for (const auto& [labels, words] : operations()) {
    EXPECT_EQ(in_words(parse_labels(labels)), words) << labels;
  }
}

/// What the Builder derives if a label is split over two ranks in all operands that have it.
class Derived {
 public:
  explicit Derived(const Labels& labels) : labels_(labels), mesh_({.tensor = 2}) {}

  /// The types of the outputs; none if it refuses.
  std::optional<std::vector<TypeOnAxis>> of_split(const std::string& label) const {
    std::vector<TypeOnAxis> types;
    for (const LabelledOperand& input : labels_.inputs) types.push_back(typed(input, label));
    return outputs(types);
  }
  std::optional<std::vector<TypeOnAxis>> of_sum(size_t operand) const {
    std::vector<TypeOnAxis> types(labels_.inputs.size(), replicated());
    types[operand] = partial();
    return outputs(types);
  }

 private:
  static constexpr int64_t kExtent = 4;

  TypeOnAxis typed(const LabelledOperand& operand, const std::string& label) const {
    for (size_t d = 0; d < operand.dims.size(); ++d) {
      int64_t repeats = 1;
      for (size_t f = 0; f < operand.dims[d].size(); ++f, repeats *= kExtent) {
        if (labels_.tied(operand.dims[d][f].name) != label) continue;
        return sharded(static_cast<int>(d), {}, static_cast<int>(f), repeats);
      }
    }
    return replicated();
  }
  std::optional<std::vector<TypeOnAxis>> outputs(const std::vector<TypeOnAxis>& types) const {
    std::vector<TypedOperand> operands;
    for (size_t k = 0; k < types.size(); ++k) {
      std::vector<int64_t> extents;
      for (const auto& dim : labels_.inputs[k].dims) {
        int64_t extent = 1;
        for (size_t f = 0; f < dim.size(); ++f) extent *= kExtent;
        extents.push_back(extent);
      }
      operands.push_back({fmt::format("operand {}", k + 1),
                          {Shape(std::span<const int64_t>(extents)), DType::f64,
                           Distribution().with(mesh_.tensor(), types[k])},
                          true});
    }
    try {
      std::vector<TypeOnAxis> result;
      for (const Distribution& output : derive_distributions(mesh_, "it", labels_, operands)) {
        result.push_back(output.on(mesh_.tensor()));
      }
      return result;
    } catch (const DistributionError&) {
      return std::nullopt;
    }
  }

  const Labels& labels_;
  Mesh mesh_;
};

TEST(LabelRules, SayWhatTheBuilderDerives) {
  for (const auto& [text, words] : operations()) {
    const Labels labels = parse_labels(text);
    const Derived derived(labels);
    for (const DimRule& rule : dim_rules(labels)) {
      const std::string where = text + ": " + rule.labels.front();
      const auto types = derived.of_split(rule.labels.front());
      ASSERT_EQ(types.has_value(), rule.effect != SplitEffect::refused) << where;
      if (!types) continue;
      bool split = true;
      for (const TypeOnAxis& type : *types) split = split && type.split();
      EXPECT_EQ(split, rule.effect == SplitEffect::stays) << where;
    }
    for (size_t k = 0; k < labels.inputs.size(); ++k) {
      if (labels.terms.size() > 1 || labels.inputs[k].shape_only) continue;
      EXPECT_EQ(derived.of_sum(k).has_value(), labels.inputs[k].linear) << text << ": " << k;
    }
  }
}

}  // namespace
}  // namespace tessera
