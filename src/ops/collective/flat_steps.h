#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "comm/flat_pieces.h"
#include "comm/piece_layout.h"
#include "program/operation.h"
#include "program/program.h"

namespace tessera {

// Sums and gathers of flat memory as a list of collectives, one rank's view of them. Flat memory is
// a set of parameters or their gradients, one after the other, and FlatPieces divides it.

/// The collective of a step.
enum class FlatStepKind : uint8_t {
  reduce_scatter,  ///< each rank gets its part of the sum
  all_reduce,      ///< each rank gets the sum
  all_gather,      ///< each rank gets the parts of all
};

/// One collective within flat memory: the ranks of its group divide a run of the memory. It works
/// in place, and does nothing if the run is empty.
struct FlatStep {
  FlatStepKind kind = FlatStepKind::all_gather;
  std::vector<Axis> axes;  ///< on which the coordinates of the group's ranks differ
  ElementRun whole;        ///< the run
  PieceLayout pieces;      ///< the pieces of the run, by position in the group
  int position = 0;        ///< of this rank in the group
  /// The length of the run, on average over the ranks that hold slices of the same piece.
  double average_length = 0;
  bool has_copies = false;  ///< whether other groups of ranks get the same sum
};

/// Returns the steps of a sum over `axes` (Mesh::axes_by_level()), after which each rank has its
/// piece of the sum. Ranks that have the same piece differ on axes of the sum that `pieces` does
/// not have: pieces with no axes and one size stand for the whole sum.
///
/// The sum is nested, innermost level first (MegaScale-MoE, appendix A.1). A level is a
/// reduce-scatter, which leaves each rank a part of the run before: its piece, and of this a slice
/// if ranks share the piece. So what is sent to farther ranks becomes less with each level. At the
/// end the slices are gathered, outermost level first. Slices begin at multiples of `grain`
/// elements. A last level over which nothing is cut is one all-reduce if `all_reduces`.
///
/// `addend` is the distribution of the memory, by which other groups may take the same sum.
std::vector<FlatStep> sum_steps(const Program& program, const FlatPieces& pieces,
                                std::span<const std::vector<Axis>> levels,
                                const Distribution& addend, bool all_reduces = true,
                                int64_t grain = 1);

/// Returns the steps that give each rank the whole, of which it has its piece. The outermost level
/// comes first, which makes the innermost split.
std::vector<FlatStep> gather_steps(const Program& program, const FlatPieces& pieces);

/// Returns the groups of the steps, in their order (see Operation::group_axes()).
std::vector<std::vector<Axis>> groups_of(std::span<const FlatStep> steps);
/// Adds the bytes of a step to those of other steps over the same axes.
void add_wire(std::vector<WireBytes>& wire, const WireBytes& added);
/// Returns the bytes that a rank sends in all steps, by their axes, on average over the ranks of a
/// group.
std::vector<WireBytes> wire_of(std::span<const FlatStep> steps, int64_t element_bytes);
/// Returns the bytes of workspace that run_steps() needs on a target.
int64_t steps_workspace(std::span<const FlatStep> steps, DType dtype, const Target& target);

/// Adds the calls of run_steps() in memory of this type. `groups` are those of the steps.
void list_steps(const CallListing& listing, std::span<const FlatStep> steps, DType dtype,
                std::span<CallList* const> groups);

/// Runs the steps in `memory`, of one dim. `groups` are those of the steps.
void run_steps(const Execution& execution, std::span<const FlatStep> steps,
               std::span<Communicator* const> groups, const Tensor& memory);

}  // namespace tessera
