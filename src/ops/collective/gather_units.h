#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ops/collective/unit_pieces.h"

namespace tessera {

/// Returns the operation that gathers the weights of units of which each rank stores a piece (see
/// use_cut_units()). Inputs: the pieces and, with second copies, the version of the weights; then,
/// updated, the copies and their version. Outputs: the whole weights. `dtypes` and
/// `may_be_quantised` (CutUnit) are by unit.
std::shared_ptr<const Operation> make_gather_units(const Program& program,
                                                   std::vector<UnitPieces> units,
                                                   std::span<const DType> dtypes,
                                                   const std::vector<bool>& may_be_quantised,
                                                   const CutUnitOptions& options, bool has_copies);

/// Returns the spec of this rank's second copy of a unit, given that of the whole unit. Rounded
/// copies are pieces of a message (ops/collective/wire_pieces.h).
Spec copy_spec(const Program& program, const FlatPieces& pieces, const Spec& whole,
               const Wire& wire);

/// Appends the reduction of a run's gradient of a unit into the main gradient of `stored`. `frame`
/// is partial on the axes of the pieces. `error_feedback` is that of CutUnitOptions.
void reduce_gradient(Builder& builder, Value frame, Value stored, const FlatPieces& pieces,
                     const Wire& wire, double error_feedback);

/// Returns the wire of a unit's numbers: integers only where they are allowed.
inline Wire wire_of_unit(const Wire& wire, bool may_be_quantised) {
  return wire.is_quantised() && !may_be_quantised ? Wire{.by_level = wire.by_level} : wire;
}

}  // namespace tessera
