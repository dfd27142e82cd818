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

/// A program whose values lie over the ranks in a way that would compute something else than one
/// rank does: a sum is missing, or would be taken twice. The message names the operation, the
/// value, the axis and what was expected.
class DistributionError : public InternalError {
 public:
  using InternalError::InternalError;
};

/// An operand of an operation, as the rules of distribution see it.
struct TypedOperand {
  std::string name;
  Spec spec;
  /// Whether it has a gradient. For a value without one (ids, targets, counts) invariant and
  /// replicated are the same.
  bool differentiable = true;
};

/// A rule that an operation states by hand beside its labels, for one axis: the types of its
/// outputs from those of its inputs, or none where the labels say it all. It throws
/// DistributionError that says what it expected if it refuses; the axis and the operands are put
/// before that. Operations have one that communicate inside, or that change rows.
using HandRule = std::function<std::optional<std::vector<TypeOnAxis>>(
    Axis axis, std::span<const TypeOnAxis> inputs)>;

/// The distributions of an operation's outputs.
///
/// On each axis of the operands' view:
///  1. Invariant meets invariant only; a value without gradient may be replicated as well.
///  2. A label that is split in one operand is split into the same pieces in all operands that have
///     it. Operands that lack it are replicated.
///  3. A split label that an output has is split there. One that it lacks is summed over, and the
///     output is partial; then every term must have the label.
///  4. A partial value passes only where the operation is linear in it: at most one in a product,
///     one in each term of a sum, beside replicated operands.
///  5. A label that is whole is not split.
///
/// Over all axes, operands with one label agree on the order in which axes split it.
/// Throws DistributionError if a rule is broken.
std::vector<Distribution> derive_distributions(const Mesh& mesh, std::string_view operation,
                                               const Labels& labels,
                                               std::span<const TypedOperand> inputs,
                                               const HandRule& by_hand = {});

}  // namespace tessera
