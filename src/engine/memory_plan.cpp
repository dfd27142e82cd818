// Plans the memory of programs, from the actions that run to the offset of each value:
//
// 1. Lifetimes (lifetimes.h) finds for each program when each block of a frame's memory is in use:
//    from one step of a segment to another.
// 2. Timeline follows the actions. It gives each micro-batch a frame, and each situation a *period*
//    of the timeline, with a step for each node that runs in it.
// 3. Planner makes a block for each kept value (in use all the time), each block of each frame and
//    each workspace, with its intervals on the timeline (intervals_of()).
// 4. assign_offsets() (arena_offsets.h) gives blocks offsets at which none overlap while both are
//    in use. Rows whose number is known only at run time have a region of their own.
// 5. The offsets are copied to values and nodes, and the bytes in use are summed up by node.

#include "engine/memory_plan.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/arena_offsets.h"
#include "engine/lifetimes.h"
#include "tensor/alignment.h"

namespace tessera {
namespace {

/// A frame of a program: the memory of one micro-batch. Another micro-batch reuses it afterwards.
struct FrameKey {
  int program = 0;
  int frame = 0;
  auto operator<=>(const FrameKey&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The steps of a situation on the timeline. Actions in the same situation share one period.
struct Period {
  Situation situation;
  int begin = 0;
  int steps = 1;

  FrameKey running() const { return {situation.program, situation.frame}; }
};

/// Returns the order of each program's segments, which is the same for all micro-batches. Throws
/// InternalError if it is not, or if a program has no action.
std::vector<std::vector<Segment>> segment_orders(size_t programs, std::span<const Action> actions) {
  std::vector<std::map<int, std::vector<Segment>>> by_micro_batch(programs);
  for (const Action& action : actions) {
    TESSERA_CHECK(action.program >= 0 && action.program < static_cast<int>(programs),
                  "an action of program {} of {}", action.program, programs);
    by_micro_batch[static_cast<size_t>(action.program)][action.micro_batch].push_back(
        action.segment);
  }
  std::vector<std::vector<Segment>> orders;
  for (const auto& micro_batches : by_micro_batch) {
    TESSERA_CHECK(!micro_batches.empty(), "program {} has no action", orders.size());
    orders.push_back(micro_batches.begin()->second);
    for (const auto& [micro_batch, order] : micro_batches) {
      TESSERA_CHECK(order == orders.back(), "micro-batch {} runs other segments than the first one",
                    micro_batch);
    }
  }
  return orders;
}

/// Follows the actions and finds the frames, and which of them are in flight during each action.
class Timeline {
 public:
  Timeline(std::span<const Lifetimes> lifetimes, std::span<const Action> actions)
      : frames(lifetimes.size()), frame_counts(lifetimes.size(), 0), lifetimes_(lifetimes) {
    for (const Action& action : actions) follow(action);
  }

  std::vector<std::map<int, int>> frames;  ///< by program, by micro-batch
  std::vector<int> frame_counts;           ///< by program
  std::vector<Period> periods;
  int steps = 0;

 private:
  int lowest_free_frame(int program) {
    int frame = 0;
    while (in_flight_.contains({program, frame})) ++frame;
    int& count = frame_counts[static_cast<size_t>(program)];
    count = std::max(count, frame + 1);
    return frame;
  }

  void follow(const Action& action) {
    const auto program = static_cast<size_t>(action.program);
    auto [found, is_new] = frames[program].try_emplace(action.micro_batch, -1);
    if (is_new) found->second = lowest_free_frame(action.program);
    const FrameKey key{action.program, found->second};
    const int segment = in_flight_[key];
    Situation situation{
        .program = key.program, .frame = key.frame, .segment_index = segment, .waiting = {}};
    for (const auto& [other, done] : in_flight_) {
      if (other != key) situation.waiting.push_back({other.program, other.frame, done});
    }
    if (std::ranges::find(periods, situation, &Period::situation) == periods.end()) {
      const auto nodes = std::ssize(lifetimes_[program].nodes[static_cast<size_t>(segment)]);
      // A block is in use for at least one step, even in a segment without nodes.
      const int step_count = std::max(static_cast<int>(nodes), 1);
      periods.push_back({std::move(situation), steps, step_count});
      steps += step_count;
    }
    if (segment + 1 == std::ssize(lifetimes_[program].order)) {
      in_flight_.erase(key);
    } else {
      in_flight_[key] = segment + 1;
    }
  }

  std::span<const Lifetimes> lifetimes_;
  std::map<FrameKey, int> in_flight_;  // the number of segments done
};

/// Returns the intervals on the timeline in which a block of a frame is in use.
std::vector<Interval> intervals_of(const FrameBlock& block, FrameKey key,
                                   const Timeline& timeline) {
  std::vector<Interval> result;
  const auto add = [&](int begin, int end) {
    if (!result.empty() && result.back().end == begin) {
      result.back().end = end;
    } else {
      result.push_back({begin, end});
    }
  };
  for (const Period& period : timeline.periods) {
    const int period_end = period.begin + period.steps;
    const int segment = period.situation.segment_index;
    if (period.running() == key) {
      if (segment < block.first.segment || segment > block.last.segment) continue;
      const bool begins = segment == block.first.segment;
      const bool ends = segment == block.last.segment;
      add(begins ? period.begin + block.first.step : period.begin,
          ends ? period.begin + block.last.step + 1 : period_end);
      continue;
    }
    for (const WaitingFrame& waiting : period.situation.waiting) {
      if (FrameKey{waiting.program, waiting.frame} == key &&
          block.first.segment < waiting.segments_done &&
          block.last.segment >= waiting.segments_done) {
        add(period.begin, period_end);
      }
    }
  }
  return result;
}

/// Makes the plan: the steps 3 to 5 above, after Lifetimes and Timeline.
class Planner {
 public:
  Planner(std::span<const Program* const> programs, std::span<const Action> actions,
          const Target& target, const GivenTensors& given)
      : programs_(programs),
        target_(target),
        given_(given),
        lifetimes_(lifetimes_of(programs, actions)),
        timeline_(lifetimes_, actions) {}

  MemoryPlan plan() {
    plan_.programs.resize(programs_.size());
    for (size_t i = 0; i < programs_.size(); ++i) describe_program(i);
    add_kept_values();
    for (size_t i = 0; i < programs_.size(); ++i) {
      for (int frame = 0; frame < timeline_.frame_counts[i]; ++frame) add_frame(i, frame);
    }
    plan_.rows.offset = assign_offsets(blocks_);
    plan_.arena_bytes = assign_offsets(row_blocks_, plan_.rows.offset);
    plan_.rows.bound_bytes = plan_.arena_bytes - plan_.rows.offset;
    copy_offsets();
    count_live_bytes();
    for (const Period& period : timeline_.periods) plan_.situations.push_back(period.situation);
    return std::move(plan_);
  }

 private:
  static std::vector<Lifetimes> lifetimes_of(std::span<const Program* const> programs,
                                             std::span<const Action> actions) {
    std::vector<Lifetimes> result;
    const auto orders = segment_orders(programs.size(), actions);
    for (size_t i = 0; i < programs.size(); ++i) result.emplace_back(*programs[i], orders[i]);
    return result;
  }

  /// Copies what the plan says of a program apart from offsets.
  void describe_program(size_t program_index) {
    const Program& program = *programs_[program_index];
    const Lifetimes& lifetimes = lifetimes_[program_index];
    ProgramMemory& memory = plan_.programs[program_index];
    memory.order = lifetimes.order;
    memory.nodes = lifetimes.nodes;
    memory.joins = lifetimes.joins;
    memory.saved = lifetimes.saved;
    memory.frames = timeline_.frames[program_index];
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
            {.bytes = aligned_bytes(info.spec.bytes()), .live = {{0, timeline_.steps}}});
        plan_.kept_bytes += blocks_.back().bytes;
      }
    }
  }

  /// Adds the blocks and workspaces of a frame, with their intervals on the timeline.
  void add_frame(size_t program_index, int frame) {
    const FrameKey key{static_cast<int>(program_index), frame};
    const Lifetimes& lifetimes = lifetimes_[program_index];
    FrameBlocks indices{.key = key};
    for (const FrameBlock& block : lifetimes.blocks) {
      std::vector<MemoryBlock>& list = block.has_run_time_rows ? row_blocks_ : blocks_;
      indices.blocks.push_back(static_cast<int>(list.size()));
      list.push_back({.bytes = block.bytes, .live = intervals_of(block, key, timeline_)});
      if (block.has_run_time_rows) expected_rows_.push_back(block.expected_bytes);
    }
    indices.workspaces.assign(programs_[program_index]->nodes().size(), -1);
    for (size_t segment = 0; segment < lifetimes.nodes.size(); ++segment) {
      for (size_t step = 0; step < lifetimes.nodes[segment].size(); ++step) {
        const auto node = static_cast<size_t>(lifetimes.nodes[segment][step]);
        const int64_t bytes = plan_.programs[program_index].workspace_bytes[node];
        if (bytes == 0) continue;
        const Moment begin{static_cast<int>(segment), static_cast<int>(step)};
        const Moment end{begin.segment, lifetimes.joins[segment].busy_until[step]};
        indices.workspaces[node] = static_cast<int>(blocks_.size());
        blocks_.push_back(
            {.bytes = aligned_bytes(bytes),
             .live = intervals_of({.bytes = bytes, .first = begin, .last = end}, key, timeline_)});
      }
    }
    frame_blocks_.push_back(std::move(indices));
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
    std::vector<int64_t> live = live_bytes(blocks_, timeline_.steps);
    const std::vector<int64_t> rows = live_bytes(row_blocks_, timeline_.steps);
    // The offsets of these blocks were copied, so their bytes may become those of an even load.
    for (size_t i = 0; i < row_blocks_.size(); ++i) row_blocks_[i].bytes = expected_rows_[i];
    for (const int64_t expected : live_bytes(row_blocks_, timeline_.steps)) {
      plan_.rows.expected_bytes = std::max(plan_.rows.expected_bytes, expected);
    }
    for (size_t step = 0; step < live.size(); ++step) live[step] += rows[step];
    for (size_t i = 0; i < programs_.size(); ++i) {
      plan_.programs[i].live_bytes.assign(programs_[i]->nodes().size(), 0);
    }
    plan_.live_bytes = plan_.kept_bytes;
    for (const Period& period : timeline_.periods) {
      const int program = period.situation.program;
      const auto& nodes = lifetimes_[static_cast<size_t>(program)]
                              .nodes[static_cast<size_t>(period.situation.segment_index)];
      for (size_t step = 0; step < nodes.size(); ++step) {
        const int64_t bytes = live[static_cast<size_t>(period.begin) + step];
        int64_t& max_bytes = plan_.programs[static_cast<size_t>(program)]
                                 .live_bytes[static_cast<size_t>(nodes[step])];
        max_bytes = std::max(max_bytes, bytes);
        if (bytes <= plan_.live_bytes) continue;
        plan_.live_bytes = bytes;
        plan_.peak_program = program;
        plan_.peak_node = nodes[step];
      }
    }
  }

  /// The indices of a frame's blocks in the lists of all blocks.
  struct FrameBlocks {
    FrameKey key;
    std::vector<int> blocks;      // in the order of the program's Lifetimes::blocks
    std::vector<int> workspaces;  // by node; -1: none
  };

  std::span<const Program* const> programs_;
  const Target& target_;
  const GivenTensors& given_;
  std::vector<Lifetimes> lifetimes_;
  Timeline timeline_;
  std::vector<MemoryBlock> blocks_;
  std::vector<MemoryBlock> row_blocks_;
  std::vector<int64_t> expected_rows_;     // by row block
  std::vector<std::vector<int>> kept_;     // by program, by value: its block, or -1
  std::vector<FrameBlocks> frame_blocks_;  // in the order of programs and frames
  MemoryPlan plan_;
};

}  // namespace

MemoryPlan plan_memory(std::span<const Program* const> programs, std::span<const Action> actions,
                       const Target& target, const GivenTensors& given) {
  return Planner(programs, actions, target, given).plan();
}

}  // namespace tessera
