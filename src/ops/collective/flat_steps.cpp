#include "ops/collective/flat_steps.h"

#include <algorithm>
#include <utility>

#include "base/round_up.h"
#include "comm/call_list.h"
#include "comm/communicator.h"
#include "comm/device_transport.h"
#include "comm/wire_bytes.h"

// Flat memory is split level by level. The innermost level (the ranks of a node) makes the
// outermost split: its ranks divide the memory first, and the ranks of the next level divide each
// of these parts. A sum takes the levels in this order, and a gather in the opposite one. SumRuns
// says which run of the memory each rank still has to sum after so many levels.

namespace tessera {
namespace {

/// Returns a step over these axes, whose ranks divide the run `whole`. A rank gets the part of
/// run_of(rank) that is within `whole`. `average_length` is FlatStep::average_length.
template <typename RunOf>
FlatStep step_of(const Program& program, FlatStepKind kind, std::vector<Axis> axes,
                 const ElementRun& whole, double average_length, RunOf&& run_of) {
  const std::vector<int> group = program.mesh().group(program.rank(), axes);
  std::vector<std::vector<ElementRun>> runs;
  for (const int rank : group) {
    const ElementRun run = intersection(run_of(rank), whole);
    runs.emplace_back();
    if (run.length > 0) runs.back().push_back({run.begin - whole.begin, run.length});
  }
  const auto position = std::ranges::find(group, program.rank()) - group.begin();
  return {kind,
          std::move(axes),
          whole,
          PieceLayout(1, whole.length, 1, std::move(runs)),
          static_cast<int>(position),
          average_length};
}

/// The runs of flat memory that ranks sum, level by level. It keeps references to its arguments.
class SumRuns {
 public:
  SumRuns(const Mesh& mesh, const FlatPieces& pieces, std::span<const std::vector<Axis>> levels,
          int64_t grain)
      : mesh_(mesh), pieces_(pieces), levels_(levels), grain_(grain) {
    for (const std::vector<Axis>& level : levels) {
      sharing_axes_.emplace_back();
      for (const Axis axis : level) {
        const bool cuts = std::ranges::find(pieces.axes, axis) != pieces.axes.end();
        if (!cuts) sharing_axes_.back().push_back(axis);
      }
    }
  }

  /// Returns the axes of a level whose ranks have the same piece. They sum different slices of it.
  const std::vector<Axis>& sharing_axes(size_t level) const { return sharing_axes_[level]; }

  /// Returns the run that a rank still has to sum after the first `level_count` levels.
  ElementRun run_after(int rank, size_t level_count) const {
    ElementRun run{0, pieces_.elements()};
    for (size_t level = 0; level < level_count; ++level) {
      run = slice_of(rank, level,
                     intersection(run, pieces_.run_of(mesh_, rank, summed_axes(level + 1))));
    }
    return run;
  }

  /// Returns the length of run_after() on average over the ranks that slice the same pieces.
  double average_after(int rank, size_t level_count) const {
    return average(pieces_.run_of(mesh_, rank, summed_axes(level_count)), level_count);
  }
  /// Returns the length of held_from(), likewise.
  double average_held(int rank, size_t level) const {
    return average(pieces_.run_of(mesh_, rank), level);
  }

  /// Returns the part of a rank's piece that the rank has once all levels are summed and the slices
  /// of the levels from `level` on are gathered.
  ElementRun held_from(int rank, size_t level) const {
    return intersection(run_after(rank, level), pieces_.run_of(mesh_, rank));
  }

 private:
  /// Returns the average length of the slices of a run after so many levels.
  double average(const ElementRun& run, size_t level_count) const {
    auto length = static_cast<double>(run.length);
    for (size_t level = 0; level < level_count; ++level) {
      for (const Axis axis : sharing_axes_[level]) length /= mesh_.size(axis);
    }
    return length;
  }

  /// Returns a rank's slice of a run, which the ranks along the level's sharing axes divide.
  ElementRun slice_of(int rank, size_t level, const ElementRun& run) const {
    // The rank's position in Mesh::group(), computed without a list of all ranks of the group.
    int position = 0, ranks = 1;
    for (const Axis axis : sharing_axes_[level]) {
      position += ranks * mesh_.coordinate(rank, axis);
      ranks *= mesh_.size(axis);
    }
    const int64_t grains = ceil_div(run.length, grain_);
    const int64_t begin = std::min(run.length, grain_ * slice_begin(grains, ranks, position));
    const int64_t end = std::min(run.length, grain_ * slice_begin(grains, ranks, position + 1));
    return {run.begin + begin, end - begin};
  }

  /// Returns the number of axes of the pieces, from the outermost split on, over which the first
  /// `level_count` levels have summed.
  size_t summed_axes(size_t level_count) const {
    const auto is_summed = [&](Axis axis) {
      return mesh_.size(axis) == 1 ||
             std::ranges::any_of(levels_.first(level_count), [&](const std::vector<Axis>& level) {
               return std::ranges::find(level, axis) != level.end();
             });
    };
    return static_cast<size_t>(std::ranges::find_if_not(pieces_.axes, is_summed) -
                               pieces_.axes.begin());
  }

  const Mesh& mesh_;
  const FlatPieces& pieces_;
  std::span<const std::vector<Axis>> levels_;
  int64_t grain_;
  std::vector<std::vector<Axis>> sharing_axes_;  // by level
};

}  // namespace

std::vector<FlatStep> sum_steps(const Program& program, const FlatPieces& pieces,
                                std::span<const std::vector<Axis>> levels,
                                const Distribution& addend, bool all_reduces, int64_t grain) {
  const SumRuns runs(program.mesh(), pieces, levels, grain);
  std::vector<FlatStep> steps;
  size_t scattered = levels.size();  // the number of levels that are summed by a reduce-scatter
  if (all_reduces && !levels.empty() && runs.sharing_axes(levels.size() - 1) == levels.back())
    --scattered;
  for (size_t level = 0; level < levels.size(); ++level) {
    const bool scatters = level < scattered;
    steps.push_back(step_of(
        program, scatters ? FlatStepKind::reduce_scatter : FlatStepKind::all_reduce, levels[level],
        runs.run_after(program.rank(), level), runs.average_after(program.rank(), level),
        [&](int rank) { return runs.run_after(rank, level + 1); }));
  }
  std::vector<Axis> summed;
  for (const std::vector<Axis>& level : levels) {
    summed.insert(summed.end(), level.begin(), level.end());
  }
  const bool has_copies = addend.has_copies_beyond(program.mesh(), summed);
  for (FlatStep& step : steps) step.has_copies = has_copies;
  for (size_t level = scattered; level-- > 0;) {
    if (runs.sharing_axes(level).empty()) continue;
    steps.push_back(step_of(program, FlatStepKind::all_gather, runs.sharing_axes(level),
                            runs.held_from(program.rank(), level),
                            runs.average_held(program.rank(), level),
                            [&](int rank) { return runs.held_from(rank, level + 1); }));
  }
  return steps;
}

std::vector<FlatStep> gather_steps(const Program& program, const FlatPieces& pieces) {
  const Mesh& mesh = program.mesh();
  std::vector<FlatStep> steps;
  for (size_t i = pieces.axes.size(); i-- > 0;) {
    if (mesh.size(pieces.axes[i]) == 1) continue;
    const ElementRun whole = pieces.run_of(mesh, program.rank(), i);
    steps.push_back(step_of(program, FlatStepKind::all_gather, {pieces.axes[i]}, whole,
                            static_cast<double>(whole.length),
                            [&](int rank) { return pieces.run_of(mesh, rank, i + 1); }));
  }
  return steps;
}

std::vector<std::vector<Axis>> groups_of(std::span<const FlatStep> steps) {
  std::vector<std::vector<Axis>> groups;
  for (const FlatStep& step : steps) groups.push_back(step.axes);
  return groups;
}

void add_wire(std::vector<WireBytes>& wire, const WireBytes& added) {
  const auto same = std::ranges::find(wire, added.axes, &WireBytes::axes);
  if (same == wire.end()) {
    wire.push_back(added);
  } else {
    same->bytes += added.bytes;
  }
}

std::vector<WireBytes> wire_of(std::span<const FlatStep> steps, int64_t element_bytes) {
  std::vector<WireBytes> wire;
  for (const FlatStep& step : steps) {
    const int ranks = step.pieces.ranks();
    const int times = step.kind == FlatStepKind::all_reduce ? 2 : 1;
    add_wire(wire, {step.axes, step.average_length * static_cast<double>(times * element_bytes) *
                                   (ranks - 1) / ranks});
  }
  return wire;
}

int64_t steps_workspace(std::span<const FlatStep> steps, DType dtype, const Target& target) {
  if (target.device == Device::cpu) return 0;
  int64_t bytes = 0;
  for (const FlatStep& step : steps) {
    const Reduction sum = kind_of_sum(target, step.has_copies);
    switch (step.kind) {
      case FlatStepKind::reduce_scatter:
        bytes = std::max(bytes, reduce_scatter_workspace(step.pieces, dtype, sum));
        break;
      case FlatStepKind::all_reduce:
        bytes = std::max(bytes,
                         all_reduce_workspace(step.whole.length, dtype, step.pieces.ranks(), sum));
        break;
      case FlatStepKind::all_gather:
        bytes = std::max(bytes, all_gather_workspace(step.pieces, dtype));
        break;
    }
  }
  return bytes;
}

void list_steps(const CallListing& listing, std::span<const FlatStep> steps, DType dtype,
                std::span<CallList* const> groups) {
  for (size_t i = 0; i < steps.size(); ++i) {
    const FlatStep& step = steps[i];
    if (step.whole.length == 0) continue;
    CallList& group = *groups[i];
    const Reduction sum = kind_of_sum(listing.target, step.has_copies);
    switch (step.kind) {
      case FlatStepKind::reduce_scatter:
        group.reduce_scatter(listing.name, step.pieces, dtype, {step.whole.length}, sum);
        break;
      case FlatStepKind::all_reduce:
        group.all_reduce(listing.name, dtype, {step.whole.length}, sum);
        break;
      case FlatStepKind::all_gather:
        group.all_gather(listing.name, step.pieces, dtype, {step.whole.length});
        break;
    }
  }
}

void run_steps(const Execution& execution, std::span<const FlatStep> steps,
               std::span<Communicator* const> groups, const Tensor& memory) {
  for (size_t i = 0; i < steps.size(); ++i) {
    const FlatStep& step = steps[i];
    if (step.whole.length == 0) continue;
    const Tensor whole = memory.view(step.whole.begin, {step.whole.length});
    const Tensor piece =
        whole.view(step.pieces.piece_begin(step.position), {step.pieces.elements(step.position)});
    Communicator& group = *groups[i];
    const Reduction sum = kind_of_sum(execution.target(), step.has_copies);
    switch (step.kind) {
      case FlatStepKind::reduce_scatter:
        group.reduce_scatter(execution.name, step.pieces, whole, piece, sum, execution.call());
        break;
      case FlatStepKind::all_reduce:
        group.all_reduce(execution.name, whole, whole, sum, execution.call());
        break;
      case FlatStepKind::all_gather:
        group.all_gather(execution.name, step.pieces, piece, whole, execution.call());
        break;
    }
  }
}

}  // namespace tessera
