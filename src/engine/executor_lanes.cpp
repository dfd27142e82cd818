// How the executor runs actions on lanes: on threads of the processor, or on streams of a device.
// Also the waits for steps that are at work when their action has ended.

#include <algorithm>
#include <iterator>

#include "engine/executor.h"

namespace tessera {

bool Executor::share_memory(const Tensor& a, const Tensor& b) {
  const auto* const a_begin = static_cast<const std::byte*>(a.address());
  const auto* const b_begin = static_cast<const std::byte*>(b.address());
  return a_begin < b_begin + b.bytes() && b_begin < a_begin + a.bytes();
}

FrameStep Executor::frame_step(StepAtWork step) const {
  const OutlastingStep& of = at_work_.step(step);
  return {.segment = {of.program, step.frame, static_cast<size_t>(of.segment_index)},
          .step = of.step};
}

HostLanes::Numbers Executor::numbers_of(std::span<const StepAtWork> steps) const {
  HostLanes::Numbers numbers{};
  for (const StepAtWork step : steps) {
    const auto found = numbers_.find(frame_step(step));
    if (found == numbers_.end()) continue;
    int64_t& number = numbers[static_cast<size_t>(at_work_.step(step).lane)];
    number = std::max(number, found->second);
  }
  return numbers;
}

void Executor::await(std::span<const StepAtWork> steps) {
  if (steps.empty()) return;
  if (host_lanes_) abandon_on_error([&] { host_lanes_->await(numbers_of(steps)); });
  for (const StepAtWork step : steps) {
    if (lanes_) lanes_->await_earlier(lanes_->compute(), frame_step(step));
    at_work_.end(step);
  }
}

std::vector<StepAtWork> Executor::users_of(const Tensor& tensor) const {
  std::vector<StepAtWork> users;
  for (const StepAtWork step : at_work_.all()) {
    const FrameStep of = frame_step(step);
    const auto program = static_cast<size_t>(of.segment.program);
    const Frame& frame = frames_[program][static_cast<size_t>(of.segment.frame)];
    const std::vector<int>& nodes = plan_.programs[program].nodes[of.segment.segment_index];
    const int index = nodes[static_cast<size_t>(of.step)];
    const Node& node = programs_[program]->nodes()[static_cast<size_t>(index)];
    const auto uses = [&](Value value) {
      return share_memory(frame.values[static_cast<size_t>(value.id)], tensor);
    };
    const Tensor& workspace = frame.workspaces[static_cast<size_t>(index)];
    if (std::ranges::any_of(node.inputs, uses) || std::ranges::any_of(node.outputs, uses) ||
        (workspace.defined() && share_memory(workspace, tensor))) {
      users.push_back(step);
    }
  }
  return users;
}

void Executor::await_unexpected(const std::set<StepAtWork>& planned) {
  std::vector<StepAtWork> unexpected;
  std::ranges::set_difference(at_work_.all(), planned, std::back_inserter(unexpected));
  await(unexpected);
}

void Executor::await_users_of(const Tensor& tensor) {
  if (!at_work_.all().empty()) await(users_of(tensor));
}

void Executor::wait_for_users_of(const Tensor& tensor) const {
  if (at_work_.all().empty()) return;
  abandon_on_error([&] { host_lanes_->await(numbers_of(users_of(tensor))); });
}

bool Executor::outlasts(const Piece& piece, int step) const {
  if (lane_of(piece, step) == Lane::compute) return false;
  return joins_of(piece).outlasts(step, piece.end_step);
}

void Executor::run_nodes_beside(const Piece& piece) {
  const Joins& joins = joins_of(piece);
  const std::vector<bool>& beside = beside_[piece.program][piece.segment];
  const FrameSegment segment = piece.frame_segment();
  const auto numbers_of_steps = [&](const LaneSteps& steps) {
    HostLanes::Numbers numbers{};
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const auto found = steps[lane] < 0 ? numbers_.end() : numbers_.find({segment, steps[lane]});
      if (found != numbers_.end()) numbers[lane] = found->second;
    }
    return numbers;
  };
  for (int step = piece.begin_step; step < piece.end_step; ++step) {
    const Lane lane = lane_of(piece, step);
    const std::vector<StepAtWork> late = at_work_.awaited_by(
        segment.program, segment.frame, static_cast<int>(piece.segment), step, lane);
    HostLanes::Numbers awaited = numbers_of_steps(joins.awaited[static_cast<size_t>(step)]);
    const HostLanes::Numbers late_numbers = numbers_of(late);
    for (size_t i = 0; i < kLanes; ++i) awaited[i] = std::max(awaited[i], late_numbers[i]);
    if (beside[static_cast<size_t>(step)] || outlasts(piece, step)) {
      numbers_[{segment, step}] = host_lanes_->hand_over(lane, {.program = piece.program,
                                                                .frame = piece.frame,
                                                                .node = node_index(piece, step),
                                                                .awaited = awaited,
                                                                .begin = compute_clock_.done()});
    } else {
      host_lanes_->await(awaited);
      if (lane != Lane::compute) host_lanes_->await(lane);
      run_node(piece, step, nullptr);
      if (lane != Lane::compute) numbers_[{segment, step}] = host_lanes_->note_done(lane);
    }
    follow_step_at_work(piece, step, late);
  }
  if (piece.end_step == std::ssize(joins.awaited))
    host_lanes_->await(numbers_of_steps(joins.at_end));
}

/// Notes that a step has begun, and that the compute lane has awaited others if it is the lane of
/// the step.
void Executor::follow_step_at_work(const Piece& piece, int step,
                                   std::span<const StepAtWork> awaited) {
  if (lane_of(piece, step) == Lane::compute) {
    for (const StepAtWork other : awaited) at_work_.end(other);
    at_work_.end_known_at(static_cast<int>(piece.program), static_cast<int>(piece.frame),
                          static_cast<int>(piece.segment), step);
  } else {
    at_work_.begin(static_cast<int>(piece.program), static_cast<int>(piece.frame),
                   static_cast<int>(piece.segment), step);
  }
}

/// Puts an action on the streams. A graph has the steps that the action awaits. The steps that
/// outlast it are put on their lanes after the graph: each is the last one of its lane.
void Executor::run_on_device(const Piece& piece) {
  const auto enqueue = [&](bool outlasting) {
    for (int step = piece.begin_step; step < piece.end_step; ++step) {
      if (outlasts(piece, step) == outlasting) enqueue_step(piece, step);
    }
  };
  const auto enqueue_awaited = [&] {
    enqueue(/*outlasting=*/false);
    lanes_->join_all();
  };
  if (uses_graphs()) {
    captured_.run({piece.frame_segment(), piece.begin_step, piece.end_step}, *lanes_,
                  enqueue_awaited);
    enqueue(/*outlasting=*/true);
  } else {
    for (int step = piece.begin_step; step < piece.end_step; ++step) enqueue_step(piece, step);
    lanes_->join_all();
  }
  for (int step = piece.begin_step; step < piece.end_step; ++step) {
    const auto awaited =
        at_work_.awaited_by(static_cast<int>(piece.program), static_cast<int>(piece.frame),
                            static_cast<int>(piece.segment), step, lane_of(piece, step));
    follow_step_at_work(piece, step, awaited);
  }
}

void Executor::enqueue_step(const Piece& piece, int step) {
  const Lane lane = lane_of(piece, step);
  LaneSteps awaited = joins_of(piece).awaited[static_cast<size_t>(step)];
  std::vector<FrameStep> earlier = late_steps(piece, step);
  const bool follows_graph = uses_graphs() && outlasts(piece, step);  // and so all of its steps
  for (int& other : awaited) {
    if (other < 0) continue;
    const bool is_of_graph = other >= piece.begin_step && !outlasts(piece, other);
    if (!is_of_graph) earlier.push_back({piece.frame_segment(), other});
    if (!is_of_graph || follows_graph) other = -1;
  }
  Stream& stream = lanes_->begin(lane, awaited);
  for (const FrameStep& other : earlier) lanes_->await_earlier(stream, other);
  run_node(piece, step, &stream);
  if (outlasts(piece, step)) {
    lanes_->end_outlasting(lane, {piece.frame_segment(), step});
  } else {
    lanes_->end(lane, step);
  }
}

/// Returns the outlasting steps of earlier actions, in all frames, for which a step must wait. A
/// graph has the waits for all of them, whichever are at work when it is launched. Those of its
/// own segment and frame are of the same micro-batch: its frame's first action has awaited others.
std::vector<FrameStep> Executor::late_steps(const Piece& piece, int step) const {
  const auto& waits = plan_.late_waits[piece.program][piece.segment][static_cast<size_t>(step)];
  std::vector<FrameStep> result;
  for (const LateWait& wait : waits) {
    const OutlastingStep& of = plan_.outlasting[static_cast<size_t>(wait.outlasting)];
    if (of.lane == lane_of(piece, step)) continue;
    const auto frames = static_cast<int>(frames_[static_cast<size_t>(of.program)].size());
    for (int frame = 0; frame < frames; ++frame) {
      if (wait.same_frame && frame != static_cast<int>(piece.frame)) continue;
      const FrameStep other = frame_step({wait.outlasting, frame});
      const bool is_of_this_action =
          other.segment == piece.frame_segment() && other.step >= piece.begin_step;
      if (!is_of_this_action) result.push_back(other);
    }
  }
  return result;
}

void Executor::abandon_host_lanes(const char* why) const noexcept {
  // Other ranks may wait for what this rank does not do any more, and a lane for these ranks.
  if (host_lanes_->abandon() && runtime_.has_groups()) runtime_.groups().end_work(why);
}

}  // namespace tessera
