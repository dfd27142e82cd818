// Plans the memory of programs, from the list of what runs to the offset of each value:
//
// 1. Lifetimes (lifetimes.h) finds for each program when each block of a frame's memory is in use:
//    from one step of a segment to another.
// 2. Timeline (timeline.h) follows the list. It gives each micro-batch a frame. It gives each
//    situation a *period* of the timeline, with a step for each node that runs in it.
// 3. Planner makes a block for each kept value (in use all the time), each block of each frame and
//    each workspace, with its intervals on the timeline. What a step of another lane than `compute`
//    uses stays in use until the compute lane has awaited the step, maybe in a later action.
// 4. assign_offsets() (arena_offsets.h) gives blocks offsets at which none overlap while both are
//    in use. Rows whose number is known only at run time have a region of their own.
// 5. The offsets are copied to values and nodes, and the bytes in use are summed up by node.

#include "engine/memory_plan.h"

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "engine/arena_offsets.h"
#include "engine/lifetimes.h"
#include "engine/timeline.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

/// Returns the order of each program's segments, which is the same for all micro-batches. A
/// micro-batch that begins anew stands for another one with the same number. Throws InternalError
/// if orders differ, or if a program has no action.
std::vector<std::vector<Segment>> segment_orders(size_t programs, std::span<const ListEntry> list) {
  std::vector<std::vector<Segment>> orders(programs);
  std::vector<std::map<int, std::vector<Segment>>> run_so_far(programs);  // by micro-batch
  const auto end_micro_batch = [&](size_t program, int number, std::vector<Segment>& run) {
    if (orders[program].empty()) orders[program] = run;
    TESSERA_CHECK(run == orders[program], "micro-batch {} runs other segments than the first one",
                  number);
    run.clear();
  };
  for (const ListEntry& entry : list) {
    const auto* const action = std::get_if<Action>(&entry);
    if (action == nullptr || action->steps.begin > 0) continue;  // a later part of a segment
    TESSERA_CHECK(action->program >= 0 && action->program < static_cast<int>(programs),
                  "an action of program {} of {}", action->program, programs);
    const auto program = static_cast<size_t>(action->program);
    std::vector<Segment>& run = run_so_far[program][action->micro_batch];
    if (!run.empty() && run.front() == action->segment) {
      end_micro_batch(program, action->micro_batch, run);
    }
    run.push_back(action->segment);
  }
  for (size_t program = 0; program < programs; ++program) {
    TESSERA_CHECK(!run_so_far[program].empty(), "program {} has no action", program);
    for (auto& [number, run] : run_so_far[program]) end_micro_batch(program, number, run);
  }
  return orders;
}

/// Makes the plan: the steps 3 to 5 above, after Lifetimes and Timeline.
class Planner {
 public:
  Planner(std::span<const Program* const> programs, std::span<const ListEntry> list,
          const Target& target, const GivenTensors& given)
      : programs_(programs),
        target_(target),
        given_(given),
        lifetimes_(lifetimes_of(programs, list)),
        plan_(describe_programs(list)),
        timeline_(programs, lifetimes_, plan_, list) {}

  MemoryPlan plan_of_lanes() {
    for (size_t i = 0; i < programs_.size(); ++i) plan_.programs[i].frames = timeline_.frames(i);
    return std::move(plan_);
  }

  int64_t most_live_bytes() {
    add_blocks();
    count_live_bytes();
    return plan_.live_bytes;
  }

  MemoryPlan plan() {
    add_blocks();
    plan_.rows.offset = assign_offsets(blocks_);
    plan_.arena_bytes = assign_offsets(row_blocks_, plan_.rows.offset);
    plan_.rows.bound_bytes = plan_.arena_bytes - plan_.rows.offset;
    copy_offsets();
    count_live_bytes();
    plan_.situations = timeline_.situations();
    return std::move(plan_);
  }

 private:
  /// The indices of a frame's blocks in the lists of all blocks.
  struct FrameBlocks {
    FrameKey key;
    std::vector<int> blocks;      // in the order of the program's Lifetimes::blocks
    std::vector<int> workspaces;  // by node; -1: none
  };

  /// The workspace of a step of another lane than `compute`, before it is shared.
  struct LaneWorkspace {
    MemoryBlock block;
    size_t frame = 0;  // index in frame_blocks_
    size_t node = 0;
  };

  static std::vector<Lifetimes> lifetimes_of(std::span<const Program* const> programs,
                                             std::span<const ListEntry> list) {
    std::vector<Lifetimes> result;
    const auto orders = segment_orders(programs.size(), list);
    for (size_t i = 0; i < programs.size(); ++i) result.emplace_back(*programs[i], orders[i]);
    return result;
  }

  /// Returns the part of a plan that says what the programs are: without frames and offsets.
  MemoryPlan describe_programs(std::span<const ListEntry> list) const {
    MemoryPlan plan;
    std::vector<std::vector<std::vector<int>>> nodes;
    for (size_t i = 0; i < programs_.size(); ++i) {
      plan.programs.push_back(describe_program(i));
      nodes.push_back(lifetimes_[i].nodes);
    }
    plan.outlasting = outlasting_steps(list);
    plan.late_waits = find_late_waits(programs_, nodes, plan.outlasting);
    return plan;
  }

  ProgramMemory describe_program(size_t program_index) const {
    const Program& program = *programs_[program_index];
    const Lifetimes& lifetimes = lifetimes_[program_index];
    ProgramMemory memory;
    memory.order = lifetimes.order;
    memory.nodes = lifetimes.nodes;
    memory.joins = lifetimes.joins;
    memory.saved = lifetimes.saved;
    memory.ranges = lifetimes.ranges;
    memory.inputs.resize(lifetimes.order.size());
    for (size_t id = 0; id < program.values().size(); ++id) {
      if (program.values()[id].kind != ValueKind::input) continue;
      const FrameBlock& block = lifetimes.blocks[static_cast<size_t>(lifetimes.block_of[id])];
      memory.inputs[static_cast<size_t>(block.first.segment)].push_back(
          Value{static_cast<int>(id)});
    }
    for (int segment = 0; segment + 1 < std::ssize(lifetimes.order); ++segment) {
      int64_t bytes = 0;
      for (const FrameBlock& block : lifetimes.blocks) {
        if (block.first.segment <= segment && block.last.segment > segment) bytes += block.bytes;
      }
      memory.saved_bytes = std::max(memory.saved_bytes, bytes);
    }
    for (const Node& node : program.nodes()) {
      memory.workspace_bytes.push_back(
          node.operation->workspace_bytes(target_, program.specs(node.inputs)));
    }
    return memory;
  }

  /// Returns the steps that outlast an action of the list.
  std::vector<OutlastingStep> outlasting_steps(std::span<const ListEntry> list) const {
    std::set<std::tuple<int, int, int>> found;      // program, segment, step
    std::set<std::tuple<int, int, int, int>> seen;  // program, segment, steps
    for (const ListEntry& entry : list) {
      const auto* const action = std::get_if<Action>(&entry);
      if (action == nullptr) continue;
      const Lifetimes& lifetimes = lifetimes_[static_cast<size_t>(action->program)];
      const auto segment = static_cast<int>(std::ranges::find(lifetimes.order, action->segment) -
                                            lifetimes.order.begin());
      const Joins& joins = lifetimes.joins[static_cast<size_t>(segment)];
      const int end = std::min(action->steps.end, static_cast<int>(joins.busy_until.size()));
      if (!seen.emplace(action->program, segment, action->steps.begin, end).second) continue;
      for (int step = action->steps.begin; step < end; ++step) {
        const bool is_other = lane_of(static_cast<size_t>(action->program),
                                      static_cast<size_t>(segment), step) != Lane::compute;
        if (is_other && joins.outlasts(step, end)) found.emplace(action->program, segment, step);
      }
    }
    std::vector<OutlastingStep> result;
    for (const auto& [program, segment, step] : found) {
      const Joins& joins =
          lifetimes_[static_cast<size_t>(program)].joins[static_cast<size_t>(segment)];
      const bool outlasts_segment = std::ranges::binary_search(joins.outlasting, step);
      const int known_at = joins.busy_until[static_cast<size_t>(step)] + 1;
      result.push_back(
          {.program = program,
           .segment_index = segment,
           .step = step,
           .known_at = outlasts_segment ? kNeverKnown : known_at,
           .lane = lane_of(static_cast<size_t>(program), static_cast<size_t>(segment), step)});
    }
    return result;
  }

  Lane lane_of(size_t program, size_t segment, int step) const {
    const int node = lifetimes_[program].nodes[segment][static_cast<size_t>(step)];
    return programs_[program]->nodes()[static_cast<size_t>(node)].operation->lane();
  }

  /// Gives weights, main gradients and states one block each, for all programs and all steps.
  void add_kept_values() {
    // By kind and name: the spec, and the index of the block.
    std::map<std::pair<ValueKind, std::string>, std::pair<Spec, int>> known;
    kept_.resize(programs_.size());
    for (size_t i = 0; i < programs_.size(); ++i) {
      const auto& values = programs_[i]->values();
      kept_[i].assign(values.size(), -1);
      for (size_t id = 0; id < values.size(); ++id) {
        const ValueInfo& info = values[id];
        if (info.kind == ValueKind::input || info.kind == ValueKind::computed) continue;
        if (given_.contains(info.name)) continue;
        const auto [found, is_new] =
            known.try_emplace({info.kind, info.name}, info.spec, static_cast<int>(blocks_.size()));
        const auto& [spec, block] = found->second;
        TESSERA_CHECK(spec == info.spec, "{} is {} in one program and {} in another", info.name,
                      spec.shape.text(), info.spec.shape.text());
        kept_[i][id] = block;
        if (!is_new) continue;
        blocks_.push_back(
            {.bytes = aligned_bytes(info.spec.bytes()), .live = {{0, timeline_.steps()}}});
        plan_.kept_bytes += blocks_.back().bytes;
      }
    }
  }

  /// Adds all blocks and workspaces.
  void add_blocks() {
    add_kept_values();
    for (size_t i = 0; i < programs_.size(); ++i) {
      plan_.programs[i].frames = timeline_.frames(i);
      for (int frame = 0; frame < timeline_.frame_count(i); ++frame) add_frame(i, frame);
    }
    share_lane_workspaces();
  }

  /// Adds the blocks and workspaces of a frame, with their intervals on the timeline.
  void add_frame(size_t program_index, int frame) {
    const FrameKey key{static_cast<int>(program_index), frame};
    const Lifetimes& lifetimes = lifetimes_[program_index];
    const std::map<int, std::vector<Interval>> late = late_intervals_of_blocks(key);
    FrameBlocks indices{.key = key};
    for (int i = 0; i < std::ssize(lifetimes.blocks); ++i) {
      const FrameBlock& block = lifetimes.blocks[static_cast<size_t>(i)];
      std::vector<MemoryBlock>& list = block.has_run_time_rows ? row_blocks_ : blocks_;
      indices.blocks.push_back(static_cast<int>(list.size()));
      std::vector<Interval> live = timeline_.block_intervals(i, key);
      if (const auto found = late.find(i); found != late.end()) live = united(live, found->second);
      list.push_back({.bytes = block.bytes, .live = std::move(live)});
      if (block.has_run_time_rows) expected_rows_.push_back(block.expected_bytes);
    }
    indices.workspaces.assign(programs_[program_index]->nodes().size(), -1);
    for (size_t segment = 0; segment < lifetimes.nodes.size(); ++segment) {
      for (size_t step = 0; step < lifetimes.nodes[segment].size(); ++step) {
        add_workspace(key, segment, step, indices);
      }
    }
    frame_blocks_.push_back(std::move(indices));
  }

  /// By block: the intervals after the end of a segment in which outlasting steps use the block.
  std::map<int, std::vector<Interval>> late_intervals_of_blocks(FrameKey key) const {
    const Program& program = *programs_[static_cast<size_t>(key.program)];
    const Lifetimes& lifetimes = lifetimes_[static_cast<size_t>(key.program)];
    std::map<int, std::vector<Interval>> result;
    for (int i = 0; i < std::ssize(plan_.outlasting); ++i) {
      const OutlastingStep& step = plan_.outlasting[static_cast<size_t>(i)];
      if (step.program != key.program) continue;
      const int index =
          lifetimes.nodes[static_cast<size_t>(step.segment_index)][static_cast<size_t>(step.step)];
      const Node& node = program.nodes()[static_cast<size_t>(index)];
      const std::vector<Interval> late = timeline_.late_intervals({i, key.frame});
      for (const auto* values : {&node.outputs, &node.inputs}) {
        for (const Value value : *values) {
          const int block = lifetimes.block_of[static_cast<size_t>(value.id)];
          if (block >= 0) result[block] = united(result[block], late);
        }
      }
    }
    return result;
  }

  void add_workspace(FrameKey key, size_t segment, size_t step, FrameBlocks& indices) {
    const auto program_index = static_cast<size_t>(key.program);
    const Lifetimes& lifetimes = lifetimes_[program_index];
    const auto node = static_cast<size_t>(lifetimes.nodes[segment][step]);
    const int64_t bytes = plan_.programs[program_index].workspace_bytes[node];
    if (bytes == 0) return;
    const Moment begin{static_cast<int>(segment), static_cast<int>(step)};
    const Moment end{begin.segment, lifetimes.joins[segment].busy_until[step]};
    MemoryBlock block{.bytes = aligned_bytes(bytes),
                      .live = timeline_.step_intervals(begin, end, key)};
    const Lane lane = lane_of(program_index, segment, begin.step);
    if (lane == Lane::compute) {
      indices.workspaces[node] = static_cast<int>(blocks_.size());
      blocks_.push_back(std::move(block));
      return;
    }
    for (int i = 0; i < std::ssize(plan_.outlasting); ++i) {
      const OutlastingStep& known = plan_.outlasting[static_cast<size_t>(i)];
      if (known.program == key.program && known.segment_index == begin.segment &&
          known.step == begin.step) {
        block.live = united(block.live, timeline_.late_intervals({i, key.frame}));
      }
    }
    lane_workspaces_[static_cast<size_t>(lane)].push_back(
        {.block = std::move(block), .frame = frame_blocks_.size(), .node = node});
  }

  /// Gives the steps of a lane, which run one after the other, a workspace that they share if
  /// several may be at work. The largest comes first.
  void share_lane_workspaces() {
    for (std::vector<LaneWorkspace>& workspaces : lane_workspaces_) {
      std::ranges::stable_sort(workspaces, std::greater{},
                               [](const LaneWorkspace& one) { return one.block.bytes; });
      const size_t first = blocks_.size();
      for (LaneWorkspace& one : workspaces) {
        const auto shared = std::find_if(
            blocks_.begin() + static_cast<ptrdiff_t>(first), blocks_.end(),
            [&](const MemoryBlock& known) { return overlap(known.live, one.block.live); });
        frame_blocks_[one.frame].workspaces[one.node] = static_cast<int>(shared - blocks_.begin());
        if (shared == blocks_.end()) {
          blocks_.push_back(std::move(one.block));
        } else {
          shared->live = united(shared->live, one.block.live);
        }
      }
    }
  }

  /// Copies the offsets of blocks to values and nodes.
  void copy_offsets() {
    for (const FrameBlocks& frame : frame_blocks_) {
      const auto program_index = static_cast<size_t>(frame.key.program);
      const Program& program = *programs_[program_index];
      const Lifetimes& lifetimes = lifetimes_[program_index];
      const std::vector<int>& kept = kept_[program_index];
      std::vector<int64_t> values(program.values().size(), -1);
      for (size_t id = 0; id < values.size(); ++id) {
        const Value value{static_cast<int>(id)};
        const auto base = static_cast<size_t>(program.base(value).id);
        const auto& view = program.info(value).view;
        const int64_t view_offset = view ? view->byte_offset : 0;
        if (kept[base] >= 0) {
          values[id] = blocks_[static_cast<size_t>(kept[base])].offset + view_offset;
        } else if (lifetimes.block_of[base] >= 0) {
          const auto block = static_cast<size_t>(lifetimes.block_of[base]);
          const auto block_index = static_cast<size_t>(frame.blocks[block]);
          const auto& list = lifetimes.blocks[block].has_run_time_rows ? row_blocks_ : blocks_;
          values[id] = list[block_index].offset + view_offset;
        }
      }
      std::vector<int64_t> workspaces;
      for (const int block : frame.workspaces) {
        workspaces.push_back(block < 0 ? -1 : blocks_[static_cast<size_t>(block)].offset);
      }
      plan_.programs[program_index].values.push_back(std::move(values));
      plan_.programs[program_index].workspaces.push_back(std::move(workspaces));
    }
  }

  /// Finds the most bytes in use at each node, and the node of the peak.
  void count_live_bytes() {
    std::vector<int64_t> live = live_bytes(blocks_, timeline_.steps());
    const std::vector<int64_t> rows = live_bytes(row_blocks_, timeline_.steps());
    // The offsets of these blocks were copied, so their bytes may become those of an even load.
    for (size_t i = 0; i < row_blocks_.size(); ++i) row_blocks_[i].bytes = expected_rows_[i];
    for (const int64_t expected : live_bytes(row_blocks_, timeline_.steps())) {
      plan_.rows.expected_bytes = std::max(plan_.rows.expected_bytes, expected);
    }
    for (size_t step = 0; step < live.size(); ++step) live[step] += rows[step];
    for (size_t i = 0; i < programs_.size(); ++i) {
      plan_.programs[i].live_bytes.assign(programs_[i]->nodes().size(), 0);
    }
    plan_.live_bytes = plan_.kept_bytes;
    const auto note_peak = [&](int64_t bytes, int program, int node) {
      if (bytes <= plan_.live_bytes) return;
      plan_.live_bytes = bytes;
      plan_.peak_program = program;
      plan_.peak_node = node;
    };
    for (const Period& period : timeline_.periods()) {
      if (period.program < 0) {
        note_peak(live[static_cast<size_t>(period.begin)], -1, -1);
        continue;
      }
      const auto program_index = static_cast<size_t>(period.program);
      const auto& nodes =
          lifetimes_[program_index].nodes[static_cast<size_t>(period.segment_index)];
      const auto first = static_cast<size_t>(period.begin_step);
      const size_t end = std::min(nodes.size(), first + static_cast<size_t>(period.steps));
      for (size_t step = first; step < end; ++step) {
        const int64_t bytes = live[static_cast<size_t>(period.begin) + step - first];
        int64_t& max_bytes =
            plan_.programs[program_index].live_bytes[static_cast<size_t>(nodes[step])];
        max_bytes = std::max(max_bytes, bytes);
        note_peak(bytes, period.program, nodes[step]);
      }
    }
  }

  std::span<const Program* const> programs_;
  const Target& target_;
  const GivenTensors& given_;
  std::vector<Lifetimes> lifetimes_;
  MemoryPlan plan_;
  Timeline timeline_;
  std::vector<MemoryBlock> blocks_;
  std::vector<MemoryBlock> row_blocks_;
  std::vector<int64_t> expected_rows_;  // by row block
  std::vector<std::vector<int>> kept_;  // by program, by value: its block, or -1
  std::array<std::vector<LaneWorkspace>, kLanes> lane_workspaces_;
  std::vector<FrameBlocks> frame_blocks_;  // in the order of programs and frames
};

}  // namespace

MemoryPlan plan_memory(std::span<const Program* const> programs, std::span<const ListEntry> list,
                       const Target& target, const GivenTensors& given) {
  return Planner(programs, list, target, given).plan();
}

MemoryPlan plan_memory(std::span<const Program* const> programs, std::span<const Action> actions,
                       const Target& target, const GivenTensors& given) {
  const std::vector<ListEntry> list(actions.begin(), actions.end());
  return plan_memory(programs, list, target, given);
}

MemoryPlan plan_lanes(std::span<const Program* const> programs, std::span<const ListEntry> list,
                      const Target& target) {
  return Planner(programs, list, target, {}).plan_of_lanes();
}

int64_t plan_live_bytes(std::span<const Program* const> programs, std::span<const ListEntry> list,
                        const Target& target) {
  return Planner(programs, list, target, {}).most_live_bytes();
}

}  // namespace tessera
