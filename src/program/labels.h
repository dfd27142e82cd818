#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// A label of a dim, or of a factor of one.
struct Label {
  std::string name;
  bool whole = false;   ///< "c!": the operation needs all of it on each rank
  bool opaque = false;  ///< "n*": as the first factor, it stands for all splits of the dim
};

/// The labels of one operand's dims, and the operand's marks.
struct LabelledOperand {
  /// The labels of each dim; more than one for a dim that is a product of factors, outermost first.
  std::vector<std::vector<Label>> dims;
  bool linear = false;      ///< "~": the operation is linear in this operand
  bool shape_only = false;  ///< "?": only its shape counts
  bool added = false;       ///< "+=", of outputs: added into, or written over, an updated input
};

/// Names for the dims of an operation's operands, from which the distributions of the outputs
/// follow (derive.h). They are written like the subscripts of einsum:
///
/// - `~t i, ~o i -> t o`: a linear map.
/// - `~t i, ~o i + ~o -> t o`: with a bias. `+` separates terms, `,` factors.
/// - `t c!, c! -> t c`: a norm. `!` marks a dim that must be whole.
/// - `t (h d!), s! (g d!) -> t (h d); h=g`: `( )` is a dim of several factors. Labels after `;` are
///   tied: they split together.
/// - `~, ?n E -> n E`: the dual of a sum. Only the shape of an operand marked `?` counts.
/// - `~t o, t i -> += o i`: the output is added into an operand.
/// - `-> += ?a b`: the output is written into an operand of any type.
/// - `~n k c -> (n* k) c`: `*` lets n stand for the whole dim, which is then split as n is.
/// - `#0 ~t o, #2 ~o i + #1 ~t p, #3 ~p i -> t i`: `#` gives the index of the operand where the
///   terms are not in the order of the operands.
///
/// A label that only an output has is whole. A label names the same dim in all operands, which must
/// agree on its pieces.
struct Labels {
  std::vector<LabelledOperand> inputs;  ///< in the order of the operands
  std::vector<std::vector<int>> terms;  ///< indices of inputs
  std::vector<LabelledOperand> outputs;
  std::vector<std::vector<std::string>> ties;

  /// Returns the first of the labels that a label is tied to; the label itself if it is not tied.
  std::string_view tied(std::string_view label) const;
};

/// Parses labels. Throws InternalError, which quotes the text, if it is not of the form above.
Labels parse_labels(std::string_view text);

}  // namespace tessera
