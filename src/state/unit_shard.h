#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "comm/flat_pieces.h"
#include "comm/tensor_piece.h"
#include "model/parameter.h"
#include "ops/update/sum_of_squares.h"
#include "state/shard_config.h"

namespace tessera {

/// Cuts flat memory of `elements` elements into `pieces` consecutive ones, as equal as can be where
/// cuts lie at the begin of a parameter or a multiple of `grain` elements after it. `parameters`
/// are the runs of the memory that parameters have; what is between two of them is padding and goes
/// with the one before. A pure function, so all ranks come to the same cuts.
///
/// With the grain of sum_of_squares() the squares of a piece are added up as those of the whole
/// parameter are, so the norm has the bits that it has without cuts. A matrix below the grain is
/// whole on one rank.
std::vector<int64_t> cut_evenly(std::span<const ElementRun> parameters, int64_t elements,
                                int pieces, int64_t grain = kSquaresElements);

/// The boxes of a tensor that together are a run of its elements, counted row by row, in the order
/// of the run. Of a matrix these are at most three: the end of a row, whole rows, and the begin of
/// a row. Each is consecutive in memory.
std::vector<std::vector<ElementRun>> boxes_of_run(const Shape& shape, const ElementRun& run);

/// How ranks share out the optimizer's states.
struct StateSharing {
  ShardOver over = ShardOver::none;
  /// Whether an optimizer needs matrices whole: then all units of hidden matrices that lie alike
  /// are cut together, as if one followed the other. Ranks have runs of whole matrices, and each
  /// cut goes through one matrix at most (ZAYA1, section V-D).
  bool whole_matrices = false;

  bool operator==(const StateSharing&) const = default;
};

/// Which rank has the optimizer's states (masters and moments) of which elements of each parameter.
/// If they are not shared out, every rank has those of the elements that it holds. If they are
/// (ZeRO-1), the flat memory of each unit, or of several units one after the other, is cut over the
/// data axis, or over expert_data for experts, and a rank has the states of its piece. Nothing but
/// the parameters, the mesh and the setting decides it, so each rank knows what the others have.
class StateShards {
 public:
  /// Refers to the list.
  StateShards(const Mesh& mesh, const ParameterList& parameters, const StateSharing& sharing);
  /// The same of the units and parameters of a list.
  StateShards(const Mesh& mesh, std::span<const ParameterUnit> units,
              std::span<const ParameterSpec> parameters, const StateSharing& sharing);

  const StateSharing& sharing() const { return sharing_; }
  const Mesh& mesh() const { return mesh_; }
  /// How a unit's memory, as it is on a rank, is cut over the ranks that share its states. Without
  /// axes if it is not.
  const FlatPieces& of_unit(size_t unit, int rank) const { return layout(unit, rank).pieces; }
  /// Whether two units are cut as if one followed the other in memory.
  bool cut_together(size_t unit, size_t other) const;
  /// The place, in a unit's memory, of the first element of which a rank has the states.
  int64_t first_of_unit(size_t unit, int rank) const;
  /// Which elements of a rank's piece of a parameter, counted row by row, have their states there.
  ElementRun held(size_t parameter, int rank) const;
  /// The ranks that share out the states of a parameter with this one, in the order of their
  /// pieces.
  std::vector<int> sharers(size_t parameter, int rank) const;
  /// The same as boxes of the whole parameter, in the order of held().
  std::vector<TensorPiece> pieces(size_t parameter, int rank) const;
  /// The places of their axes tell which ranks have the same states of a parameter: its
  /// distribution, split over the axes of the cut as well.
  Distribution distribution(size_t parameter) const;

 private:
  /// A unit as the ranks of one place on the axes that split its parameters have it.
  struct UnitLayout {
    FlatPieces pieces;
    std::map<size_t, int64_t> firsts;        // by parameter: its first element in the unit
    std::map<size_t, TensorPiece> of_ranks;  // by parameter
  };

  const UnitLayout& layout(size_t unit, int rank) const;
  UnitLayout make_layout(size_t unit, int rank) const;
  FlatPieces cut(size_t unit, int rank) const;
  std::span<const Axis> axes_of_cut(size_t unit) const;

  Mesh mesh_;
  std::span<const ParameterUnit> units_;
  std::span<const ParameterSpec> parameters_;
  StateSharing sharing_;
  // By unit and the coordinates on the axes that split it. Filled when first asked for.
  mutable std::map<std::pair<size_t, std::vector<int>>, UnitLayout> layouts_;
};

}  // namespace tessera
