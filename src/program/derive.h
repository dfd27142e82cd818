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
/// from the labels of all dims. `hand_rule` is asked first on each axis. The rules for labels stand
/// at the top of derive.cpp.
///
/// Over all axes, operands with one label agree on the order in which axes split it. Throws
/// DistributionError if a rule is broken.
std::vector<Distribution> derive_distributions(const Mesh& mesh, std::string_view operation,
                                               const Labels& labels,
                                               std::span<const TypedOperand> inputs,
                                               const HandRule& hand_rule = {});

}  // namespace tessera
