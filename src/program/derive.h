#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/distribution.h"
#include "program/labels.h"
#include "program/value.h"

namespace tessera {

/// Thrown for a program that would compute something else on several ranks than on one, because its
/// distributions do not fit: a sum would be missing, or be taken twice. The message names the
/// operation, the value, the axis and what was expected.
class DistributionError : public InternalError {
 public:
  using InternalError::InternalError;
};

/// An operand of an operation, as the rules of distribution see it.
struct TypedOperand {
  std::string name;
  Spec spec;
  /// True if it has a gradient. Without one (ids, counts), invariant and replicated are the same.
  bool differentiable = true;
};

/// A hand-written rule of an operation, for one axis. It returns the types of the outputs for these
/// types of the inputs, or none if the labels decide. If the types do not fit, it throws a
/// DistributionError that says what it expected. derive_distributions() puts the axis and the
/// operands before that message. Operations that communicate inside, or that change which rows a
/// rank has, have such a rule.
using HandRule = std::function<std::optional<std::vector<TypeOnAxis>>(
    Axis axis, std::span<const TypeOnAxis> inputs)>;

/// Returns the distributions of an operation's outputs, which follow from those of its inputs and
/// from the labels of all dims. `hand_rule` is asked first on each axis.
///
/// On each axis of the operands' view:
/// 1. Invariant operands combine with invariant ones only; a value without gradient may be
///    replicated as well.
/// 2. A label that is split in one operand is split into the same pieces in all operands that have
///    it. Operands that lack it are replicated.
/// 3. An output that has a split label is split there. An output that lacks it is a sum over the
///    label, so it is partial; then every term must have the label.
/// 4. Partial operands are allowed only where the operation is linear in them: at most one in a
///    product, and one in each term of a sum. The other operands are replicated.
/// 5. A label marked whole is not split.
///
/// Over all axes, operands with one label agree on the order in which axes split it. Throws
/// DistributionError if a rule is broken.
std::vector<Distribution> derive_distributions(const Mesh& mesh, std::string_view operation,
                                               const Labels& labels,
                                               std::span<const TypedOperand> inputs,
                                               const HandRule& hand_rule = {});

}  // namespace tessera
