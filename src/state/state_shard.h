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
#include "state/shard_axes.h"

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

/// The way in which ranks share out the training state.
struct StateSharing {
  ShardAxes axes;  ///< over which each part of it is cut
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
/// Everything is divided as the parameters' distributions say. If ranks share the state out, the
/// flat memory of each unit is cut besides, evenly, over the context axis and the levels of the
/// data axis, or over those of expert_data for experts. All axes of ShardAxes::optimizer cut the
/// masters and moments (the *states*). The first of them cut the main gradient, and the first of
/// these the weights, so a rank's piece of the states is part of its piece of the gradient, and
/// that of its piece of the weights. If an optimizer needs whole matrices, the states of hidden
/// matrices are cut otherwise: in one piece of several units.
///
/// Each rank knows what the others have, because parameters, mesh and setting decide it. A shard
/// never changes; several threads may use it.
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
  /// Returns whether ranks share the second copy of the weights of some unit. If so, each unit with
  /// cut weights has one, also where its own group is one rank.
  bool has_second_copies() const;

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
    return !axes_of(unit_of(parameter), kind).empty();
  }
  /// Returns the distribution of a kept tensor of a parameter. Ranks whose coordinates agree on the
  /// axes that split it hold the same elements.
  Distribution distribution(size_t parameter, Kept kind) const;
  /// Returns the pieces of a kept tensor that this rank has, one after the other in its memory.
  /// Returns none if it does not hold the parameter.
  std::vector<TensorPiece> pieces(size_t parameter, Kept kind) const;
  /// Returns the run of a parameter of whose kept tensor this rank has the elements. It counts the
  /// elements of this rank's piece of the parameter, row by row. It is empty if the rank does not
  /// hold the parameter.
  ElementRun held(size_t parameter, Kept kind) const;
  /// Returns the offset of the first element of this rank's piece of the parameter in
  /// run_of_unit(). It is below 0 if another rank has that element of the tensor.
  int64_t offset_in(size_t parameter, Kept kind) const {
    return layout_->in_unit[parameter].begin - run_of_unit(unit_of(parameter), kind).begin;
  }
  /// Returns the run of a unit's flat memory of whose kept tensor this rank has the elements.
  ElementRun run_of_unit(size_t unit, Kept kind) const;

  /// Returns the even pieces of a unit over all axes that cut any of its state; not cut if none
  /// does, or if the unit is not on this rank's stage. The first axes cut weights and gradients.
  const FlatPieces& even_cut(size_t unit) const { return layout_->even_cuts[unit]; }
  /// Returns the pieces of a unit's weights and main gradient.
  const UnitPieces& stored(size_t unit) const { return layout_->stored[unit]; }
  /// Returns whether the states of a unit are cut otherwise than its weights and its main gradient,
  /// although these are cut too.
  bool is_rearranged(size_t unit) const {
    return stored(unit).is_cut() && sharing_.whole_matrices && units_[unit].matrices;
  }
  /// Returns whether the masters of a unit have memory of their own: the weights are rounded, or
  /// cut otherwise.
  bool has_masters(size_t unit) const { return is_rounded(units_[unit]) || is_rearranged(unit); }

  // The functions below are about the states, which are masters and moments.

  /// Returns the axes over which ranks share out the states of a unit; none if they do not.
  std::vector<Axis> axes_of_cut(size_t unit) const;
  /// Returns the pieces into which the ranks that share out a unit's states cut its flat memory.
  /// The result has no axes if the unit is not cut, or not on this rank's stage.
  const FlatPieces& cut(size_t unit) const { return layout_->cuts[unit]; }
  /// Returns whether two units of this rank's stage are cut as if one followed the other in memory.
  bool cut_together(size_t first, size_t second) const;
  ElementRun held(size_t parameter) const { return held(parameter, Kept::master); }
  /// Returns held() of each of the ranks that share the states out, in the order of sharers().
  std::vector<ElementRun> held_by_sharers(size_t parameter) const;
  /// Returns the ranks that share out a parameter's states, in the order of their pieces.
  std::vector<int> sharers(size_t parameter) const;

 private:
  /// The layout of all units on the ranks that hold the same pieces of the same parameters.
  struct Layout {
    std::vector<Axis> split_axes;       // those that split a unit
    std::vector<TensorPiece> pieces;    // by parameter
    std::vector<ElementRun> in_unit;    // by parameter: its run in the memory of its unit
    std::vector<FlatPieces> even_cuts;  // by unit
    std::vector<UnitPieces> stored;     // by unit
    std::vector<FlatPieces> cuts;       // by unit: of the states
    std::vector<std::vector<int64_t>> piece_begins;  // by unit: the offset of each piece of the cut
  };
  friend class RankShards;

  Layout layout_of_rank() const;  // computes layout_
  /// Returns the coordinates that decide which pieces of the parameters a rank has.
  std::vector<int> layout_key(int rank) const;
  /// Returns cut_axes() of a unit; none if no optimizer changes it.
  std::vector<Axis> cut_axes_of(size_t unit, int count) const;
  /// Returns the axes that cut a kept tensor of a unit.
  std::vector<Axis> axes_of(size_t unit, Kept kind) const;
  /// Returns the even pieces over the first `count` axes; not cut if they have one rank.
  FlatPieces even_pieces(const Layout& layout, size_t unit, int count) const;
  /// Returns the run of a unit's memory whose states this rank has. The unit is cut.
  ElementRun own_run(size_t unit) const;
  /// Returns the run of a parameter within a run of its unit.
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
