#pragma once

#include <string>
#include <vector>

#include "program/labels.h"
#include "program/program.h"

namespace tessera {

/// What an operation makes of a dim that ranks split.
enum class SplitDim {
  stays,    ///< its results are split alike
  summed,   ///< each rank has an addend of a result
  refused,  ///< the operation needs all of it on each rank
};

/// A dim by its label, or several that split together, and what becomes of it.
struct DimRule {
  std::vector<std::string> labels;
  SplitDim split = SplitDim::refused;

  bool operator==(const DimRule&) const = default;
};

/// What the rules of derive_distributions() say of each dim of the inputs, in the order in which
/// the labels name them. A dim of which one result is split and another is a sum counts as summed.
std::vector<DimRule> dim_rules(const Labels& labels);

/// The same as a sentence for people: "a split of t or o stays, a split of i leaves a sum to take;
/// operand 1 or 2 may be a sum". "h = g" are dims that split together.
std::string in_words(const Labels& labels);

/// Whether the labels alone say how a node's results lie. Other operations meet other ranks, change
/// what rows a rank has, or take a part as it is said to lie, and state a rule by hand.
bool labels_decide(const Program& program, const Node& node);

}  // namespace tessera
