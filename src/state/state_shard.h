#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/worded.h"
#include "comm/flat_pieces.h"
#include "comm/tensor_piece.h"
#include "model/parameter.h"
#include "ops/update/sum_of_squares.h"
#include "state/shard_config.h"

namespace tessera {

/// Returns the sizes of the `pieces` consecutive pieces into which flat memory of `elements`
/// elements is cut. `parameters` are the parameters' runs of it; padding goes with the parameter
/// before it. A cut is at the beginning of a parameter or a multiple of `grain` elements after it,
/// whichever is nearest to an even cut. The arguments alone decide this, so all ranks agree.
///
/// With the grain of sum_of_squares(), the squares of a piece are added up as in the whole
/// parameter, so cuts do not change the norm's bits. A parameter of up to `grain` elements is not
/// cut.
std::vector<int64_t> cut_evenly(std::span<const ElementRun> parameters, int64_t elements,
                                int pieces, int64_t grain = kSquaresElements);

/// Returns the boxes of a tensor that make up a run of its elements, counted row by row. A box has
/// one run for each dim and is consecutive in memory. A run of a matrix has at most three boxes:
/// the end of a row, whole rows, and the beginning of a row.
std::vector<std::vector<ElementRun>> boxes_of_run(const Shape& shape, const ElementRun& run);

/// The way in which ranks share out masters and moments.
struct StateSharing {
  ShardOver ranks = ShardOver::none;  ///< the ranks that share them out
  /// True if an optimizer needs whole matrices. Then all units of hidden matrices of one element
  /// type and distribution are cut together, as if one followed the other. Ranks have runs of whole
  /// matrices, and each cut goes through at most one matrix (ZAYA1, section V-D).
  bool whole_matrices = false;
  bool operator==(const StateSharing&) const = default;
};

/// The kinds of tensors that are kept of a parameter between steps.
enum class Kept : uint8_t {
  weight,           ///< the values that programs compute with
  gradient,         ///< the main gradient, summed over the micro-batches of a step
  summed_gradient,  ///< the part of the main gradient that an update has summed over all ranks
  master,           ///< the weights themselves unless these are rounded to bf16
  first_moment,     ///< AdamW's m, or Muon's momentum
  second_moment,    ///< AdamW's v; none for what Muon updates
};
template <>
inline constexpr std::array<std::string_view, 6> kWordsOf<Kept>{
    "weight", "gradient", "summed gradient", "master", "first_moment", "second_moment"};

/// The part of the training state that one rank holds: which elements of each parameter, and which
/// other ranks hold the rest or a copy.
///
/// The lists are those of the whole model. A rank has nothing of a unit that is not on its pipeline
/// stage (ParameterUnit::stages).
///
/// Weights and main gradients are divided as the parameters' distributions say. So are masters and
/// moments (the states), unless ranks share them out (ZeRO-1): then the flat memory of each unit,
/// or of several units one after the other, is cut over the data axis, or over expert_data for
/// experts, and a rank has the states of its piece. Each rank knows what the others have, because
/// parameters, mesh and setting decide it. A shard never changes; several threads may use it.
class StateShard {
 public:
  /// Makes the shard of a rank. The lists must outlive it.
  StateShard(const MeshRank& mesh_rank, std::span<const ParameterUnit> units,
             std::span<const ParameterSpec> parameters, const StateSharing& sharing);
  StateShard(const MeshRank& mesh_rank, const ParameterList& parameters,
             const StateSharing& sharing)
      : StateShard(mesh_rank, parameters.units(), parameters.specs(), sharing) {}

  /// Returns the shard of another rank. If the two ranks have the same pieces of all weights, their
  /// shards use the same Layout.
  StateShard of_rank(int rank) const;

  const StateSharing& sharing() const { return sharing_; }

  int rank() const { return rank_; }
  const Mesh& mesh() const { return mesh_; }
  /// Returns whether this rank's pipeline stage has a parameter.
  bool holds(size_t parameter) const { return on_stage(unit_of(parameter)); }
  /// Returns whether a rank is on the first of the pipeline stages that have a parameter. That
  /// stage stands for all of them where a copy is to be counted or written once.
  bool on_first_stage(size_t parameter, int rank) const {
    return units_[unit_of(parameter)].stages.front() == mesh_.stage(rank);
  }
  /// Returns whether ranks share out a kept tensor of a parameter. Otherwise a rank that holds the
  /// parameter has all of its piece of it.
  bool shared_out(size_t parameter, Kept kind) const {
    return kind != Kept::weight && kind != Kept::gradient &&
           !axes_of_cut(unit_of(parameter)).empty();
  }
  /// Returns the distribution of a kept tensor of a parameter. Ranks whose coordinates agree on the
  /// axes that split it hold the same elements.
  Distribution distribution(size_t parameter, Kept kind) const;
  /// Returns the pieces of a kept tensor that this rank has, one after the other in its memory.
  /// Returns none if it does not hold the parameter.
  std::vector<TensorPiece> pieces(size_t parameter, Kept kind) const;

  // The functions below are about the states, which are masters and moments.

  /// Returns the axes over which ranks share out the states of a unit; none if they do not.
  std::span<const Axis> axes_of_cut(size_t unit) const;
  /// Returns the pieces into which the ranks that share out a unit's states cut its flat memory.
  /// The result has no axes if the unit is not cut, or not on this rank's stage.
  const FlatPieces& cut(size_t unit) const { return layout_->cuts[unit]; }
  /// Returns whether two units of this rank's stage are cut as if one followed the other in memory.
  bool cut_together(size_t first, size_t second) const;
  /// Returns the run of a parameter whose states this rank has. It counts the elements of this
  /// rank's piece of the parameter, row by row. It is empty if the rank does not hold the
  /// parameter.
  ElementRun held(size_t parameter) const;
  /// Returns the offset that this rank's piece of the parameter has in its memory of the unit's
  /// states. If another rank has the states of the first elements, the offset may be below 0.
  int64_t offset_in_states(size_t parameter) const;
  /// Returns held() of each of the ranks that share the states out, in the order of sharers().
  std::vector<ElementRun> held_by_sharers(size_t parameter) const;
  /// Returns the ranks that share out a parameter's states, in the order of their pieces.
  std::vector<int> sharers(size_t parameter) const;

 private:
  /// The layout of all units on the ranks that hold the same pieces of the same parameters.
  struct Layout {
    std::vector<Axis> split_axes;     // those that split a unit
    std::vector<TensorPiece> pieces;  // by parameter
    std::vector<ElementRun> in_unit;  // by parameter: its run in the memory of its unit
    std::vector<FlatPieces> cuts;     // by unit
    std::vector<std::vector<int64_t>> piece_begins;  // by unit: the offset of each piece of the cut
  };
  friend class RankShards;

  Layout layout_of_rank() const;  // computes layout_
  /// Returns the coordinates that decide which pieces of the parameters a rank has.
  std::vector<int> layout_key(int rank) const;
  /// Returns the run of a unit's memory whose states this rank has. The unit is cut.
  ElementRun own_run(size_t unit) const;
  /// Returns what held() does, for the rank that has this run of the unit's memory.
  ElementRun held_of(size_t parameter, const ElementRun& piece_of_unit) const;
  bool on_stage(size_t unit) const { return units_[unit].on_stage(mesh_.stage(rank_)); }
  size_t unit_of(size_t parameter) const {
    return static_cast<size_t>(parameters_[parameter].unit_index);
  }

  Mesh mesh_;
  int rank_;
  std::span<const ParameterUnit> units_;
  std::span<const ParameterSpec> parameters_;
  StateSharing sharing_;
  std::shared_ptr<const Layout> layout_;
};

/// The shards of all ranks, each made when it is first asked for. Not thread-safe.
class RankShards {
 public:
  explicit RankShards(const StateShard& own);
  RankShards(const RankShards&) = delete;
  RankShards& operator=(const RankShards&) = delete;
  /// Returns the shard of a rank, which lives as long as this object.
  const StateShard& shard_of(int rank);

 private:
  std::map<int, StateShard> shards_;                         // by rank
  std::map<std::vector<int>, const StateShard*> by_layout_;  // by layout_key()
};

}  // namespace tessera
