#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/busy_meter.h"
#include "engine/compute_clock.h"
#include "engine/device_lanes.h"
#include "engine/device_transfers.h"
#include "engine/frames_in_flight.h"
#include "engine/host_lanes.h"
#include "engine/memory_plan.h"
#include "engine/trace.h"
#include "program/runtime.h"
#include "tensor/arena.h"

namespace tessera {

/// The result of a check of every floating-point result for NaN and infinity.
struct FiniteCheck {
  int64_t nodes = 0;  ///< the number of nodes before the first one with a result that is not finite
  /// Names the first value that is not finite, and its operation; none if all values are finite.
  std::optional<std::string> message;
};

/// Runs programs as they were planned (memory_plan.h). The memory of all values and workspaces is
/// one arena, reserved at construction. A *frame* is the part of the arena that one micro-batch
/// uses in one program. One thread uses an executor.
class Executor {
 public:
  /// Reserves the arena and zeroes it. Throws Error if the system cannot reserve it. `given` has
  /// the memory of the kept values that the plan left out: their owner calls synchronize() before
  /// it reads or writes them. The programs and the runtime must outlive the executor.
  Executor(std::vector<const Program*> programs, MemoryPlan plan, Runtime& runtime,
           const GivenTensors& given = {});
  /// Also plans the memory of the programs, for this list (see plan_memory()).
  Executor(std::vector<const Program*> programs, std::span<const ListEntry> list, Runtime& runtime,
           const GivenTensors& given = {});
  Executor(std::vector<const Program*> programs, std::span<const Action> actions, Runtime& runtime,
           const GivenTensors& given = {});
  /// Waits for an accelerator and for other lanes: they may still use the memory that is freed
  /// here, and other ranks need what the lanes do. After an error, lanes leave out what has not
  /// begun. If the error is that of a lane and comes out here, this ends the work of all ranks as
  /// run() does.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Makes the communicators of all programs, in the same order on all ranks. This connects the
  /// ranks' devices, which takes memory and may fail. Without this call, the first run() of each
  /// program makes its communicators.
  void join_groups();
  /// Returns the groups of ranks of a node's collectives, after join_groups().
  std::span<Communicator* const> groups(int program, size_t node) const {
    return groups_[static_cast<size_t>(program)].at(node);
  }

  /// Runs an action: a segment of a program (its forward or backward pass, or all of it) for one
  /// micro-batch. The plan must contain the action in the same *situation*: the same frames are in
  /// flight, which means between two of their segments, and the same values are held. Values of
  /// other situations may share memory with those. The first segment may also run while its own
  /// frame is in flight: the caller then gives up what the frame has. Throws InternalError for
  /// other situations, and if an input of the segment is still held.
  ///
  /// On an accelerator the work is only enqueued, and begins when the compute lane has done the
  /// action before it. On the processor the compute lane is done when this returns. Steps of other
  /// lanes may still be at work, if they use neither inputs nor outputs of the program. The steps
  /// of later actions that need their results await them, and so do tensor(), write(), copy(),
  /// read() and synchronize(). If this throws while calls of other ranks are under way, it ends the
  /// work of all ranks (RankGroups::end_work()).
  void run(const Action& action);

  /// Begins or ends a hold. The plan must contain it in the same situation. Outputs are as the last
  /// segment left them until it ends, and inputs may be written from now on. On an accelerator this
  /// waits for nothing: earlier work may still use the memory of these inputs. Throws InternalError
  /// if the plan does not have the situation, and for a hold that breaks the rules (see Hold).
  void hold(const Hold& hold);

  /// Returns the tensor of a program's value in a micro-batch's frame. Its contents are valid while
  /// the value is live in the plan (see plan_memory()). On the processor this waits for steps that
  /// are at work on it. If they fail, it ends the work of all ranks as run() does.
  const Tensor& tensor(Value value, int program = 0, int micro_batch = 0) const;
  /// Returns the tensor of the value of that name. Throws InternalError if there is none.
  const Tensor& tensor(std::string_view name, int program = 0, int micro_batch = 0) const;
  /// Returns the inputs that the caller must write right before an action of this segment, apart
  /// from those that were held: they have their contents.
  std::span<const Value> inputs(Segment segment, int program = 0) const;

  /// Returns whether the processor runs the programs.
  bool on_host() const { return !lanes_; }
  /// Writes into a tensor of the arena before the next work runs. On an accelerator this does not
  /// wait for the copy. The caller may change `from` at once.
  void write(std::span<const std::byte> from, const Tensor& to);
  /// Copies a tensor of the arena to another of the same shape and type, before the next work runs.
  void copy(const Tensor& from, const Tensor& to);
  /// Returns the tensors as they are after all work given to run() so far. On an accelerator this
  /// does not wait; Snapshot::wait() does.
  Snapshot read(std::span<const Tensor> tensors);
  /// Waits until all work of all lanes is done. Throws Error if some of it failed.
  void synchronize();

  /// Gives up the frames in flight and what is held, once all work is done: a list may begin anew.
  /// Throws Error as synchronize() does.
  void give_up_frames();
  /// Does so after an error has ended the work of all ranks (RankGroups::end_work()), which may
  /// have left this rank's lanes with steps that cannot be done. On the processor, steps that have
  /// not begun are left out, and the errors of others are forgotten. An accelerator's work goes on.
  void abandon_work();

  Runtime& runtime() const { return runtime_; }
  /// Returns the stream of the compute lane; null on the processor.
  Stream* stream() { return lanes_ ? &lanes_->compute() : nullptr; }
  const MemoryPlan& plan() const { return plan_; }
  const Arena& arena() const { return arena_; }
  const Program& program(int index) const { return *programs_[static_cast<size_t>(index)]; }

  /// Records each node's time in `trace` from now on; null ends that. An accelerator's times are
  /// added when the recording ends, after waiting for its work.
  void set_trace(Trace* trace);
  /// Returns what times an accelerator's work for the trace; null without a trace, and on the
  /// processor.
  TraceTimer* trace_timer() { return timer_ ? &*timer_ : nullptr; }
  /// Checks every node that runs from now on, up to the first one with a value that is not finite;
  /// null ends that. Nodes also run after a value that is not finite, so that collectives complete
  /// on all ranks. On the processor all lanes run on the caller's thread meanwhile.
  void set_finite_check(FiniteCheck* check);
  /// Sets a function that is called with the outputs of each node after Operation::run(); an empty
  /// one ends that. On the processor all lanes then run on the caller's thread. On an accelerator
  /// the node's work may still be running, and the launch of a captured graph calls nothing (see
  /// set_graphs()).
  using Observer =
      std::function<void(const Program& program, const Node& node, std::span<const Tensor>)>;
  void set_observer(Observer observer);
  /// Makes nodes of the compute lane take time instead of running, from now on: as many seconds as
  /// the function says; a node for which it has no time computes. An empty function ends that.
  /// Nodes of other lanes run, on whatever values there are. So computed values have no meaning,
  /// and a node whose messages depend on values must not be there. A trace, whose clock is then the
  /// processor's, has the nodes with the times that they are given. Throws InternalError on an
  /// accelerator.
  using NodeSeconds =
      std::function<std::optional<double>(const Program& program, const Node& node)>;
  void set_node_seconds(NodeSeconds seconds);
  /// Measures from now on how long the accelerator works; null ends that. The meter must outlive
  /// the executor, or the next call of this function.
  void set_busy_meter(BusyMeter* meter) { meter_ = meter; }
  /// Sets whether an action is captured as a graph when it runs for the second time, and launched
  /// as one from then on; by default it is. Only accelerators have graphs.
  void set_graphs(bool graphs) { graphs_ = graphs; }

 private:
  /// The tensors of one frame by value, and the workspaces of its nodes.
  struct Frame {
    std::vector<Tensor> values;
    std::vector<Tensor> workspaces;
  };
  /// The operands of the node that a lane runs; reserved for the longest lists.
  struct Operands {
    std::vector<Tensor> inputs, outputs;
  };
  /// By node of a program: the groups of ranks of its collectives.
  using Groups = std::vector<std::vector<Communicator*>>;
  /// An action, as indices.
  struct Piece {
    size_t program = 0;
    size_t frame = 0;
    size_t segment = 0;
    int begin_step = 0;
    int end_step = 0;

    FrameSegment frame_segment() const {
      return {static_cast<int>(program), static_cast<int>(frame), segment};
    }
  };

  /// Makes the tensors of all frames of a program, from the plan's offsets and the given memory.
  void bind(size_t program_index, const GivenTensors& given);
  Groups find_groups(const Program& program) const;
  /// Throws InternalError if a program of several ranks was written for another rank.
  void require_own_rank(const Program& program) const;
  /// Returns the index of a micro-batch's frame.
  int frame_index(int program, int micro_batch) const;
  const Frame& frame(int program, int micro_batch) const;
  /// Returns the index of a segment in the order of a program's segments.
  size_t find_segment(int program, Segment segment) const;
  /// Calls work(), which puts work into the compute lane's stream, between the meter's events.
  template <typename Work>
  void metered(Work&& work) {
    if (meter_ != nullptr && lanes_) meter_->begin(lanes_->compute());
    work();
    if (meter_ != nullptr && lanes_) meter_->end(lanes_->compute());
  }
  /// Begins an action. Throws unless the plan has its situation. Awaits steps that the plan does
  /// not expect to be at work.
  Piece begin_action(const Action& action, int frame_index);
  static Piece piece_of(const Situation& situation);
  size_t node_index(const Piece& piece, int step) const;
  const Node& node_of(const Piece& piece, int step) const;
  Lane lane_of(const Piece& piece, int step) const {
    return node_of(piece, step).operation->lane();
  }
  const Joins& joins_of(const Piece& piece) const {
    return plan_.programs[piece.program].joins[piece.segment];
  }
  /// Returns whether a step of another lane may be at work when its action has ended.
  bool outlasts(const Piece& piece, int step) const;
  /// Makes the compute lane await outlasting steps.
  void await(std::span<const StepAtWork> steps);
  /// Makes it await those that are at work and not among `planned`.
  void await_unexpected(const std::set<StepAtWork>& planned);
  /// Makes it await those that use the tensor's memory.
  void await_users_of(const Tensor& tensor);
  /// Waits on the processor until they are done; they count as at work all the same.
  void wait_for_users_of(const Tensor& tensor) const;
  std::vector<StepAtWork> users_of(const Tensor& tensor) const;
  /// Returns the step of an outlasting step.
  FrameStep frame_step(StepAtWork step) const;
  /// Returns the numbers of outlasting steps on the processor's lanes.
  HostLanes::Numbers numbers_of(std::span<const StepAtWork> steps) const;
  void follow_step_at_work(const Piece& piece, int step, std::span<const StepAtWork> awaited);
  bool uses_graphs() const;
  /// Before the lanes are destroyed: awaits them, or abandons them after an error.
  void end_host_lanes() const noexcept;
  /// Makes the threads of lanes that have something to run beside the compute lane.
  void make_host_lanes();
  /// Returns whether lanes work at the same time on the processor. Checks and observers need each
  /// node to be done before the next one.
  bool uses_host_lanes() const;
  void run_nodes(const Piece& piece);
  void run_nodes_beside(const Piece& piece);
  void run_one_after_the_other(const Piece& piece);
  void run_on_device(const Piece& piece);
  void enqueue_step(const Piece& piece, int step);
  std::vector<FrameStep> late_steps(const Piece& piece, int step) const;
  /// After an error: lets the other ranks know if they would wait for what the lanes do.
  void abandon_host_lanes(const char* why) const noexcept;
  /// Calls work(), and abandon_host_lanes() if it throws.
  template <typename Work>
  void abandon_on_error(Work&& work) const {
    try {
      work();
    } catch (const std::exception& error) {
      abandon_host_lanes(error.what());
      throw;
    } catch (...) {
      abandon_host_lanes("an unknown error");
      throw;
    }
  }
  void run_node(const Piece& piece, int step, Stream* stream);
  /// `is_beside_compute` is as in Execution.
  void run_node(size_t program_index, size_t frame_index, size_t node_index, Stream* stream,
                bool is_beside_compute = false);
  /// Returns whether two tensors have memory in common.
  static bool share_memory(const Tensor& a, const Tensor& b);
  /// Zeroes the outputs that have memory of their own, so that checks and observers see zeros in
  /// the rows that a run does not use.
  static void clear_outputs(const Operands& operands, Stream* stream);
  /// Runs a node's operation, and records its time if there is a trace.
  void run_timed(const Program& program, const Node& node, const Execution& execution);
  /// Puts a node into the compute clock instead of running it, and records it if there is a trace.
  void take_time(const Program& program, const Node& node, double seconds);
  void check_outputs(const Program& program, const Node& node,
                     std::span<const Tensor> outputs) const;

  std::vector<const Program*> programs_;
  MemoryPlan plan_;
  Runtime& runtime_;
  Arena arena_;
  std::optional<DeviceLanes> lanes_;  // none on the processor
  std::optional<DeviceTransfers> transfers_;
  std::vector<std::vector<Frame>> frames_;  // by program
  std::vector<Groups> groups_;              // by program; empty before its first run
  FramesInFlight in_flight_;
  std::array<Operands, kLanes> operands_;  // by lane
  Trace* trace_ = nullptr;
  std::optional<TraceTimer> timer_;  // set while an accelerator's work is traced
  BusyMeter* meter_ = nullptr;
  FiniteCheck* finite_check_ = nullptr;
  Observer observer_;
  NodeSeconds node_seconds_;
  ComputeClock compute_clock_;  // used while node_seconds_ is set
  bool graphs_ = true;
  CapturedActions captured_;
  StepsAtWork at_work_;
  std::vector<std::vector<std::vector<bool>>> beside_;  // by program and segment: steps_beside()
  std::map<FrameStep, int64_t> numbers_;  // on the processor: of the steps of other lanes
  /// Null if nothing runs beside the compute lane. Last, because its threads use the others.
  std::unique_ptr<HostLanes> host_lanes_;
};

/// Returns the index of the first NaN or infinity, or -1 if there is none.
int64_t first_non_finite(const Tensor& tensor);

/// Opens what the programs' operations need on the runtime's accelerator: libraries and their
/// plans. Throws Error, as the first run would, if something is missing: a library, kernels in this
/// build, or a device that has such kernels. Does nothing on the processor.
void require_runnable(std::span<const Program* const> programs, Runtime& runtime);

}  // namespace tessera
