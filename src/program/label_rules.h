#pragma once

#include <string>
#include <vector>

#include "program/labels.h"
#include "program/program.h"

namespace tessera {

/// The effect of an operation on a dim that ranks split.
enum class SplitDim {
  stays,    ///< its results are split in the same way
  summed,   ///< each rank has one addend of a result
  refused,  ///< the operation needs all of it on each rank
};

/// A dim, by its label (or several dims that split together), and the effect of the operation on
/// its split.
struct DimRule {
  std::vector<std::string> labels;
  SplitDim split = SplitDim::refused;

  bool operator==(const DimRule&) const = default;
};

/// Returns the rules of derive_distributions() for each dim of the inputs, in the order in which
/// the labels name them. A dim on which one result is split and another is a sum counts as summed.
std::vector<DimRule> dim_rules(const Labels& labels);

/// Returns the rules as text for people: "split stays: t, o; split leaves a sum: i; may be a sum:
/// operand 1 or 2". "h = g" are dims that split together.
std::string in_words(const Labels& labels);

/// Returns whether the labels alone determine the distributions of a node's outputs. They do not
/// for operations that meet other ranks, that change the rows of a rank, or that are given the
/// distribution of a part.
bool labels_decide(const Program& program, const Node& node);

}  // namespace tessera
