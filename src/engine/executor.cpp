// Runs planned programs. Between two segments of a program a frame waits: it is in flight. A
// situation is an action together with the frames that wait and the values that are held meanwhile
// (frames_in_flight.h). The constructor binds every value of every frame to a tensor in the arena,
// at the plan's offset. run() runs the nodes of an action's segment:
//
// 1. begin_action() checks that the plan has the situation.
// 2. run_nodes() goes through the nodes. run_node() collects a node's tensors and its workspace,
//    and calls Operation::run(). On the processor, a node of another lane than that of computing
//    may be given to the lane's thread (host_lanes.h). On an accelerator this puts the work into
//    the stream of the node's lane, after the work that it depends on (device_lanes.h). An action's
//    second run captures a graph.
// 3. FramesInFlight::end() notes that the frame waits for its next steps, if there are any.
//
// Steps of other lanes than that of computing may be at work when their action has ended.
// StepsAtWork says which, and the steps of later actions that need their results await them.
//
// hold() only checks and notes what is held: somebody else moves the contents.
//
// The caller writes a segment's inputs before it and reads outputs after it. The copies are made at
// once on the processor, and in the stream's order on an accelerator (device_transfers.h).

#include "engine/executor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/monotonic.h"
#include "tensor/dispatch.h"

namespace tessera {

Executor::Executor(std::vector<const Program*> programs, MemoryPlan plan, Runtime& runtime,
                   const GivenTensors& given)
    : programs_(std::move(programs)),
      plan_(std::move(plan)),
      runtime_(runtime),
      arena_(plan_.arena_bytes, runtime.accelerator()),
      frames_(programs_.size()),
      groups_(programs_.size()),
      in_flight_(programs_, plan_.programs),
      at_work_(plan_.outlasting, plan_.late_waits) {
  if (runtime.accelerator() != nullptr) {
    lanes_.emplace(*runtime.accelerator());
    transfers_.emplace(*runtime.accelerator(), lanes_->compute());
  }
  size_t max_inputs = 0, max_outputs = 0;
  for (size_t i = 0; i < programs_.size(); ++i) {
    bind(i, given);
    for (const Node& node : programs_[i]->nodes()) {
      max_inputs = std::max(max_inputs, node.inputs.size());
      max_outputs = std::max(max_outputs, node.outputs.size());
    }
  }
  for (Operands& operands : operands_) {
    operands.inputs.reserve(max_inputs);
    operands.outputs.reserve(max_outputs);
  }
  if (runtime.accelerator() == nullptr) make_host_lanes();
}

Executor::Executor(std::vector<const Program*> programs, std::span<const ListEntry> list,
                   Runtime& runtime, const GivenTensors& given)
    : Executor(programs, plan_memory(programs, list, runtime.target(), given), runtime, given) {}

Executor::Executor(std::vector<const Program*> programs, std::span<const Action> actions,
                   Runtime& runtime, const GivenTensors& given)
    : Executor(programs, plan_memory(programs, actions, runtime.target(), given), runtime, given) {}

Executor::~Executor() {
  if (host_lanes_) end_host_lanes();
  host_lanes_.reset();
  if (!lanes_) return;
  try {
    runtime_.accelerator()->synchronize();
  } catch (...) {  // a destructor must not throw; synchronize() and Snapshot::wait() report it
    return;
  }
}

void Executor::end_host_lanes() const noexcept {
  if (host_lanes_->is_abandoned()) return;
  const bool is_unwinding = std::uncaught_exceptions() > 0;
  try {
    abandon_on_error([&] {  // other ranks need what is at work
      is_unwinding ? host_lanes_->throw_if_failed() : host_lanes_->await_all();
    });
  } catch (...) {  // a destructor must not throw; synchronize() reports it
    return;
  }
}

void Executor::make_host_lanes() {
  std::array<bool, kLanes> needed{};
  for (size_t i = 0; i < programs_.size(); ++i) {
    const ProgramMemory& memory = plan_.programs[i];
    std::vector<std::vector<bool>>& by_segment = beside_.emplace_back();
    for (size_t segment = 0; segment < memory.nodes.size(); ++segment) {
      std::vector<Lane> lanes;
      for (const int node : memory.nodes[segment]) {
        lanes.push_back(programs_[i]->nodes()[static_cast<size_t>(node)].operation->lane());
      }
      const auto& beside = by_segment.emplace_back(steps_beside(lanes, memory.joins[segment]));
      for (size_t step = 0; step < lanes.size(); ++step) {
        if (beside[step]) needed[static_cast<size_t>(lanes[step])] = true;
      }
    }
  }
  for (const auto& [situation, steps] : plan_.situations) {
    if (situation.program < 0) continue;
    const Piece piece = piece_of(situation);
    for (int step = piece.begin_step; step < piece.end_step; ++step) {
      if (outlasts(piece, step)) needed[static_cast<size_t>(lane_of(piece, step))] = true;
    }
  }
  std::vector<Lane> lanes;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    if (needed[lane]) lanes.push_back(static_cast<Lane>(lane));
  }
  if (lanes.empty()) return;
  host_lanes_ = std::make_unique<HostLanes>(lanes, [this](Lane, const HostLanes::Step& step) {
    run_node(step.program, step.frame, step.node, nullptr, /*is_beside_compute=*/true);
  });
}

void Executor::bind(size_t program_index, const GivenTensors& given) {
  const Program& program = *programs_[program_index];
  const ProgramMemory& memory = plan_.programs[program_index];
  for (size_t frame_index = 0; frame_index < memory.values.size(); ++frame_index) {
    Frame frame;
    for (size_t id = 0; id < program.values().size(); ++id) {
      const ValueInfo& info = program.values()[id];
      const ValueInfo& base = program.info(program.base(Value{static_cast<int>(id)}));
      const int64_t offset = memory.values[frame_index][id];
      if (offset >= 0) {
        frame.values.push_back(arena_.at(offset, info.spec.shape, info.spec.dtype));
      } else if (const auto found = given.find(base.name); found != given.end()) {
        TESSERA_CHECK(
            found->second.shape() == base.spec.shape && found->second.dtype() == base.spec.dtype,
            "{} is {} {}, a tensor of {} {} was given for it", base.name,
            dtype_name(base.spec.dtype), base.spec.shape.text(), dtype_name(found->second.dtype()),
            found->second.shape().text());
        const int64_t first = info.view ? info.view->byte_offset / dtype_size(info.spec.dtype) : 0;
        frame.values.push_back(found->second.view(first, info.spec.shape));
      } else {
        frame.values.emplace_back();  // no node makes or uses the value
      }
    }
    for (size_t node = 0; node < program.nodes().size(); ++node) {
      const int64_t offset = memory.workspaces[frame_index][node];
      frame.workspaces.push_back(
          offset < 0 ? Tensor() : arena_.at(offset, {memory.workspace_bytes[node]}, DType::u8));
    }
    frames_[program_index].push_back(std::move(frame));
  }
}

Executor::Groups Executor::find_groups(const Program& program) const {
  require_own_rank(program);
  Groups groups;
  for (const Node& node : program.nodes()) {
    std::vector<Communicator*>& node_groups = groups.emplace_back();
    for (const std::vector<Axis>& axes : node.operation->group_axes()) {
      node_groups.push_back(&runtime_.groups().over(axes, word(node.operation->lane()),
                                                    node.operation->group_stages()));
    }
  }
  return groups;
}

void Executor::require_own_rank(const Program& program) const {
  if (program.mesh().ranks() == 1) return;
  const int rank = runtime_.groups().rank();
  TESSERA_CHECK(program.rank() == rank,
                "rank {} runs a program that was written for rank {}: two ranks would update the "
                "same pieces of the state, and none those of rank {}",
                rank, program.rank(), rank);
}

void Executor::join_groups() {
  for (size_t i = 0; i < programs_.size(); ++i) {
    if (groups_[i].empty()) groups_[i] = find_groups(*programs_[i]);
  }
}

int Executor::frame_index(int program, int micro_batch) const {
  const auto program_index = static_cast<size_t>(program);
  TESSERA_CHECK(program_index < programs_.size(), "no program {} of {}", program, programs_.size());
  const std::map<int, int>& frames = plan_.programs[program_index].frames;
  const auto found = frames.find(micro_batch);
  TESSERA_CHECK(found != frames.end(), "micro-batch {} of program {} was not planned", micro_batch,
                program);
  return found->second;
}

const Executor::Frame& Executor::frame(int program, int micro_batch) const {
  const auto index = static_cast<size_t>(frame_index(program, micro_batch));
  return frames_[static_cast<size_t>(program)][index];
}

const Tensor& Executor::tensor(Value value, int program, int micro_batch) const {
  const Frame& owner = frame(program, micro_batch);
  const ValueInfo& info = programs_[static_cast<size_t>(program)]->info(value);
  const Tensor& tensor = owner.values[static_cast<size_t>(value.id)];
  TESSERA_CHECK(tensor.defined(), "{} has no memory: no node makes or uses it", info.name);
  if (host_lanes_) wait_for_users_of(tensor);
  return tensor;
}

const Tensor& Executor::tensor(std::string_view name, int program, int micro_batch) const {
  return tensor(programs_[static_cast<size_t>(program)]->find(name), program, micro_batch);
}

size_t Executor::find_segment(int program, Segment segment) const {
  const std::vector<Segment>& order = plan_.programs[static_cast<size_t>(program)].order;
  const auto found = std::ranges::find(order, segment);
  TESSERA_CHECK(found != order.end(), "the segment {} of program {} was not planned", word(segment),
                program);
  return static_cast<size_t>(found - order.begin());
}

std::span<const Value> Executor::inputs(Segment segment, int program) const {
  return plan_.programs[static_cast<size_t>(program)].inputs[find_segment(program, segment)];
}

void Executor::write(std::span<const std::byte> from, const Tensor& to) {
  if (!transfers_) return upload(from, to);
  TESSERA_CHECK(std::ssize(from) == to.bytes(), "{} bytes for a tensor of {}", from.size(),
                to.bytes());
  await_users_of(to);
  if (timer_) timer_->begin(lanes_->compute());
  metered([&] { transfers_->write(from, to.address()); });
  if (timer_) {
    timer_->end(lanes_->compute(), {.name = "copy_batch", .block = "data", .phase = "step"});
  }
}

void Executor::copy(const Tensor& from, const Tensor& to) {
  await_users_of(from);
  await_users_of(to);
  if (!lanes_) return to.copy_from(from);
  metered([&] { lanes_->compute().copy(to.address(), from.address(), from.bytes()); });
}

Snapshot Executor::read(std::span<const Tensor> tensors) {
  Snapshot snapshot;
  for (const Tensor& tensor : tensors) await_users_of(tensor);
  if (transfers_) {
    metered([&] { snapshot = transfers_->read(tensors); });
    return snapshot;
  }
  for (const Tensor& tensor : tensors) {
    snapshot.tensors.emplace_back(tensor.shape(), tensor.dtype()).copy_from(tensor);
  }
  return snapshot;
}

void Executor::synchronize() {
  if (lanes_) runtime_.accelerator()->synchronize();
  if (host_lanes_) {
    host_lanes_->begin();
    abandon_on_error([&] { host_lanes_->await_all(); });
  }
  at_work_.end_all();
}

void Executor::give_up_frames() {
  synchronize();
  in_flight_.give_up();
}

void Executor::abandon_work() {
  if (host_lanes_) {
    host_lanes_->abandon();
    host_lanes_->begin();
    at_work_.end_all();
  }
  in_flight_.give_up();
}

Executor::Piece Executor::piece_of(const Situation& situation) {
  return {.program = static_cast<size_t>(situation.program),
          .frame = static_cast<size_t>(situation.frame),
          .segment = static_cast<size_t>(situation.segment_index),
          .begin_step = situation.begin_step,
          .end_step = situation.end_step};
}

const Node& Executor::node_of(const Piece& piece, int step) const {
  return programs_[piece.program]->nodes()[node_index(piece, step)];
}

Executor::Piece Executor::begin_action(const Action& action, int frame_index) {
  const auto segment = static_cast<int>(find_segment(action.program, action.segment));
  await(at_work_.awaited_before(action.program, frame_index, segment, action.steps.begin));
  const Situation& situation = in_flight_.begin(action, frame_index);
  const auto planned = plan_.situations.find(situation);
  TESSERA_CHECK(planned != plan_.situations.end(),
                "the segment {} of micro-batch {} of program {} was not planned for the {} frames "
                "that wait now and the {} values that are held",
                word(action.segment), action.micro_batch, action.program, situation.waiting.size(),
                situation.held.size());
  await_unexpected(planned->second);
  return piece_of(situation);
}

void Executor::hold(const Hold& hold) {
  const int frame = frame_index(hold.program, hold.micro_batch);
  const std::optional<Situation> situation = in_flight_.follow(hold, frame);
  if (!situation) return;
  const auto planned = plan_.situations.find(*situation);
  TESSERA_CHECK(
      planned != plan_.situations.end(),
      "a hold of inputs of micro-batch {} of program {} was not planned for the {} frames "
      "that wait now and the {} values that are held",
      hold.micro_batch, hold.program, situation->waiting.size(), situation->held.size());
  await_unexpected(planned->second);
}

void Executor::run(const Action& action) {
  const auto program_index = static_cast<size_t>(action.program);
  const int frame_number = frame_index(action.program, action.micro_batch);
  if (host_lanes_) host_lanes_->begin();
  const Piece piece = begin_action(action, frame_number);
  Groups& groups = groups_[program_index];
  if (groups.empty()) groups = find_groups(*programs_[program_index]);
  if (transfers_) transfers_->end_writes();
  metered([&] { run_nodes(piece); });
  in_flight_.end(action, frame_number);
}

/// Returns whether actions run as graphs. Traces and checks need the host between nodes.
bool Executor::uses_graphs() const {
  return lanes_ && graphs_ && trace_ == nullptr && finite_check_ == nullptr;
}

bool Executor::uses_host_lanes() const {
  return host_lanes_ && finite_check_ == nullptr && !observer_;
}

void Executor::run_nodes(const Piece& piece) {
  if (lanes_) {
    run_on_device(piece);
  } else if (uses_host_lanes()) {
    abandon_on_error([&] { run_nodes_beside(piece); });
  } else {
    if (host_lanes_) synchronize();
    run_one_after_the_other(piece);
  }
  if (piece.end_step == std::ssize(joins_of(piece).awaited)) {
    await(at_work_.awaited_by_end(static_cast<int>(piece.program), static_cast<int>(piece.frame),
                                  static_cast<int>(piece.segment)));
  }
  if (node_seconds_) compute_clock_.join();
}

void Executor::run_one_after_the_other(const Piece& piece) {
  for (int step = piece.begin_step; step < piece.end_step; ++step) {
    run_node(piece, step, nullptr);
    numbers_.erase({piece.frame_segment(), step});  // it is done: nothing waits for it
  }
}

size_t Executor::node_index(const Piece& piece, int step) const {
  return static_cast<size_t>(
      plan_.programs[piece.program].nodes[piece.segment][static_cast<size_t>(step)]);
}

void Executor::run_node(const Piece& piece, int step, Stream* stream) {
  run_node(piece.program, piece.frame, node_index(piece, step), stream);
}

void Executor::run_node(size_t program_index, size_t frame_index, size_t node_index, Stream* stream,
                        bool is_beside_compute) {
  const Program& program = *programs_[program_index];
  const Frame& frame = frames_[program_index][frame_index];
  const Node& node = program.nodes()[node_index];
  Operands& operands = operands_[static_cast<size_t>(node.operation->lane())];
  operands.inputs.clear();
  operands.outputs.clear();
  for (const Value input : node.inputs) {
    operands.inputs.push_back(frame.values[static_cast<size_t>(input.id)]);
  }
  for (const Value output : node.outputs) {
    operands.outputs.push_back(frame.values[static_cast<size_t>(output.id)]);
  }
  if (finite_check_ != nullptr || observer_) clear_outputs(operands, stream);
  const Tensor& workspace = frame.workspaces[node_index];
  const size_t workspace_bytes = workspace.defined() ? static_cast<size_t>(workspace.bytes()) : 0;
  run_timed(program, node,
            {.runtime = runtime_,
             .inputs = operands.inputs,
             .outputs = operands.outputs,
             .workspace = {static_cast<std::byte*>(workspace.address()), workspace_bytes},
             .stream = stream,
             .name = program.name_of(node),
             .groups = groups_[program_index][node_index],
             .is_beside_compute = is_beside_compute});
  if (finite_check_ != nullptr && !finite_check_->message) {
    check_outputs(program, node, operands.outputs);
  }
  if (observer_) observer_(program, node, operands.outputs);
}

void Executor::clear_outputs(const Operands& operands, Stream* stream) {
  for (const Tensor& output : operands.outputs) {
    const auto in_place = [&](const Tensor& input) { return share_memory(input, output); };
    if (std::ranges::any_of(operands.inputs, in_place)) continue;
    if (stream == nullptr) {
      output.fill_zero();
    } else {
      stream->fill_zero(output.address(), output.bytes());
    }
  }
}

void Executor::run_timed(const Program& program, const Node& node, const Execution& execution) {
  if (node_seconds_ && !execution.is_beside_compute) {
    if (node.operation->lane() == Lane::compute) {
      if (const std::optional<double> seconds = node_seconds_(program, node)) {
        return take_time(program, node, *seconds);
      }
    }
    compute_clock_.join();
  }
  if (!timer_) {
    const Trace::Span span(trace_, program, node);
    node.operation->run(execution);
    return;
  }
  timer_->begin(*execution.stream);
  node.operation->run(execution);
  TraceEvent event = trace_->event_of(program, node);
  trace_->take_products(event);
  timer_->end(*execution.stream, std::move(event));
}

void Executor::take_time(const Program& program, const Node& node, double seconds) {
  const ComputeClock::Clock::time_point begin = compute_clock_.add(seconds);
  if (trace_ != nullptr) {
    trace_->add(program, node, monotonic_seconds_at(begin),
                monotonic_seconds_at(compute_clock_.done()));
  }
}

void Executor::set_trace(Trace* trace) {
  if (host_lanes_) synchronize();  // a trace has whole events
  if (timer_) {
    timer_->finish();
    timer_.reset();
  }
  trace_ = trace;
  if (trace_ != nullptr && lanes_) {
    timer_.emplace(*runtime_.accelerator(), lanes_->compute(), *trace_);
  }
}

void Executor::set_finite_check(FiniteCheck* check) {
  if (host_lanes_) synchronize();  // the lanes read it
  finite_check_ = check;
}

void Executor::set_observer(Observer observer) {
  if (host_lanes_) synchronize();
  observer_ = std::move(observer);
}

void Executor::set_node_seconds(NodeSeconds seconds) {
  if (host_lanes_) synchronize();
  TESSERA_CHECK(on_host(), "nodes of an accelerator take their own time");
  node_seconds_ = std::move(seconds);
}

void Executor::check_outputs(const Program& program, const Node& node,
                             std::span<const Tensor> outputs) const {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!is_floating(outputs[i].dtype())) continue;
    const int64_t element = first_non_finite(outputs[i]);
    if (element >= 0) {
      finite_check_->message = fmt::format(
          "{} is not finite at element {} (made by {} in the {} pass)",
          program.info(node.outputs[i]).name, element, node.operation->name(), word(node.phase));
      return;
    }
  }
  ++finite_check_->nodes;
}

int64_t first_non_finite(const Tensor& tensor) {
  if (tensor.accelerator() != nullptr) return first_non_finite(on_host(tensor));
  return dispatch_floating(tensor.dtype(), [&](auto type) -> int64_t {
    using T = decltype(type);
    const std::span<T> values = tensor.values<T>();
    for (size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(static_cast<Compute<T>>(values[i]))) return static_cast<int64_t>(i);
    }
    return -1;
  });
}

void require_runnable(std::span<const Program* const> programs, Runtime& runtime) {
  if (runtime.accelerator() == nullptr) return;
  for (const Program* const program : programs) {
    for (const Node& node : program->nodes()) {
      node.operation->require_runnable(runtime, program->specs(node.inputs));
    }
  }
}

}  // namespace tessera
