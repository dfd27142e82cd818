#pragma once

#include <string>
#include <vector>

#include "program/labels.h"
#include "program/program.h"

namespace tessera {

// A summary, for readers, of the distributions that derive_distributions() derives from labels.
// `explain` prints it, and tests compare it with the derived distributions.

/// The effect on an operation's results if ranks split a dim of its inputs.
enum class SplitEffect {
  stays,    ///< the results are split in the same way
  summed,   ///< each rank has one addend of a result
  refused,  ///< the operation needs the whole dim on each rank
};

/// The effect of a split of one dim, or of several dims whose labels are tied: they split together.
struct DimRule {
  std::vector<std::string> labels;
  SplitEffect effect = SplitEffect::refused;

  bool operator==(const DimRule&) const = default;
};

/// Returns a rule for each label by which an input can be split, in the order of the inputs and
/// their dims. Tied labels have one rule. If a split of a dim splits one result and makes another
/// one a sum, the effect is `summed`.
std::vector<DimRule> dim_rules(const Labels& labels);

/// Returns the rules as text. For `~t i, ~o i -> t o` it is "split stays: t, o; split leaves a sum:
/// i; may be a sum: operand 1 or 2". One of "1 or 2" may be partial. "h = g" are tied labels.
std::string in_words(const Labels& labels);

/// Returns whether the labels alone determine the distributions of a node's outputs. They do not if
/// the operation runs on the network lane, has a hand-written rule, or gives the distributions
/// itself (see Operation::distributions()).
bool labels_decide(const Program& program, const Node& node);

}  // namespace tessera
