#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/flat_pieces.h"
#include "comm/wire_format.h"
#include "program/builder.h"

namespace tessera {

/// The pieces that ranks keep between the runs of a program of a unit's weights and of its main
/// gradient. Pieces of gradients are pieces of the pieces of weights, or the same.
struct UnitPieces {
  FlatPieces weights;  ///< not cut if each rank has whole weights
  FlatPieces
      gradients;  ///< not cut if each rank has a whole main gradient; then neither is weights
  /// Those of a second copy of the weights (hpZ of ZeRO++), if there is one. Without axes each rank
  /// has all of it.
  std::optional<FlatPieces> secondary = {};
  bool is_cut() const { return gradients.is_cut(); }
  bool operator==(const UnitPieces&) const = default;
};

/// A unit whose weights are gathered, and whose gradients are reduced, in each run of a program.
struct CutUnit {
  Value stored;  ///< the parameter: this rank's piece of the weights, or whole weights
  UnitPieces pieces;
  std::string name;  ///< for the names of its values
  /// False for a unit of wider numbers than most, such as norms beside matrices of bf16: it travels
  /// as it is where others become integers.
  bool may_be_quantised = true;
};

/// The options of use_cut_units().
struct CutUnitOptions {
  bool gathers_again = true;  ///< the backward pass gathers again, instead of keeping weights
  Wire weights_wire = {};     ///< of gathers (qwZ of ZeRO++); fp32 stands for weights as they are
  Wire secondary_wire = {};   ///< of the second copy, in memory and in its gathers; likewise
  Wire gradients_wire = {};   ///< of reductions (qgZ)
  /// If above 0 and reductions send integers, the rounding errors of a rank's own gradients are
  /// kept in a state and added to its next ones; so much of earlier errors is kept (LoCo).
  double error_feedback = 0;
};

/// Appends the gather of the whole weights of units that are used together, and returns the whole
/// weights (ZeRO-3; Rajbhandari et al. 2020). A unit whose weights are stored whole is the same
/// memory. The weights take memory from here to their last use in the forward pass, and again in
/// the backward pass.
///
/// In the backward pass the products add the gradients of each unit into one value of the run. When
/// the last has been added, it is summed over the axes of UnitPieces::gradients, and each rank adds
/// its piece to its main gradient (ZeRO-2 and ZeRO-3). The main gradient remains partial on all
/// other axes on which it was so.
///
/// A unit may have a second copy, in pieces over other ranks (UnitPieces::secondary), as a state.
/// `version` is then a state, i32 [1], which advance_version() changes with the weights; it is null
/// in a program without a backward pass. The gather in the forward pass writes the copy and notes
/// the version. The gather in the backward pass reads the copy alone. If it is of another version
/// than the weights, it throws Error, or fills the gathered weights with NaN on a device.
std::vector<Value> use_cut_units(Builder& builder, std::span<const CutUnit> units,
                                 const CutUnitOptions& options, Value version = {});

/// The beginning of the names of states that are second copies of weights.
inline constexpr std::string_view kSecondCopyPrefix = "secondary:";
/// The beginning of the names of states with rounding errors (CutUnitOptions::error_feedback).
inline constexpr std::string_view kErrorPrefix = "error:";

/// Appends the next version of the weights, in this state of i32 [1].
void advance_version(Builder& builder, Value version);

}  // namespace tessera
