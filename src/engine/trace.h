#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "device/event_pair.h"
#include "engine/step_trace.h"
#include "program/program.h"

namespace tessera {

/// Records one training step: the operations with their times and the costs that they state, and
/// the matrix products that ran. The time in which the trace itself works is in no event, and is
/// added up (StepTrace::recording_seconds). Any thread may time and add events. That of the trace,
/// which made it, does all else: it takes the matrix products, and its work is what recording
/// takes.
class Trace {
 public:
  /// Returns the seconds since some fixed moment.
  using Clock = std::function<double()>;

  /// Counts the runtime's matrix products during its lifetime; the runtime must outlive it. Times
  /// come from `clock`, or from the processor's clock if none is given.
  explicit Trace(Runtime& runtime, Clock clock = {});

  /// A guard that times the whole step during its lifetime. All events must be within it. Does
  /// nothing if `trace` is null.
  class Step {
   public:
    Step(Trace* trace, int64_t number);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    Trace* trace_;
  };

  /// A guard that times one node, if `trace` is not null. Spans of a thread do not overlap. The
  /// program must outlive the trace, which reads what the node is when step() is called: that takes
  /// longer than to note a time.
  class Span {
   public:
    Span(Trace* trace, const Program& program, const Node& node);
    /// Times work that is not a node of a program, such as reading data.
    Span(Trace* trace, std::string_view name, std::string_view block);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Trace* trace_;
    const Program* program_ = nullptr;  // null if the work is no node
    const Node* node_ = nullptr;
    TraceEvent event_;
  };

  /// Adds an event that was timed elsewhere (see TraceTimer), in seconds since the trace began.
  void add(TraceEvent event);
  /// Adds a node that works from one moment of the trace's clock to another. The end may be still
  /// to come. The program must outlive the trace, as for a Span.
  void add(const Program& program, const Node& node, double begin, double end);

  /// Returns the event of a node without times and products. Adds its groups of ranks to the step.
  TraceEvent event_of(const Program& program, const Node& node);
  /// Adds to an event the matrix products that ran, or were put into a stream, since the last call.
  void take_products(TraceEvent& event);

  const StepTrace& step();
  /// Returns what the clock showed when the trace began.
  double begin() const { return begin_; }
  /// Returns the seconds since the trace began.
  double now() const { return clock_() - begin_; }

 private:
  friend class TraceTimer;

  /// An event of the step that has only its times and products so far.
  struct NodeEvent {
    size_t event = 0;  // index
    const Program* program;
    const Node* node;
  };

  /// Adds an event that has its times and products. step() fills in what the node is.
  void add(const Program& program, const Node& node, TraceEvent event);
  /// Returns the groups of ranks that a node calls, one for each view of the mesh, as indices in
  /// the step's list of them. Adds those that are new.
  std::vector<int> groups_of(const Program& program, const Node& node);
  /// Returns the index of the group over these axes of one view, of which at least one has several
  /// ranks. `stages` are those whose ranks are in the group; empty for all.
  int group_index(const Program& program, std::span<const Axis> axes, std::span<const int> stages);
  bool is_own_thread() const { return std::this_thread::get_id() == thread_; }

  Clock clock_;
  double begin_;
  std::thread::id thread_ = std::this_thread::get_id();
  std::mutex mutex_;  // guards the events of step_ and node_events_
  GemmCounter products_;
  StepTrace step_;
  std::vector<NodeEvent> node_events_;
};

/// Times work of an accelerator for a trace, by events in its streams.
class TraceTimer {
 public:
  /// Takes the start of a piece of work, in seconds since the trace began, and its duration.
  using Record = std::function<void(double start, double duration)>;

  /// Waits for `stream` and relates the device's clock to the trace's. All arguments must outlive
  /// the timer.
  TraceTimer(Accelerator& accelerator, Stream& stream, Trace& trace);

  /// Begins a piece: all work put into the stream before end(). A piece may have others within it.
  void begin(Stream& stream);
  /// Ends the piece that was begun last and has no end yet. finish() gives its times to `record`.
  void end(Stream& stream, Record record);
  /// Does so for an event, which finish() adds to the trace.
  void end(Stream& stream, TraceEvent event);
  /// Waits for all work and records its times, in the order in which the pieces were begun.
  void finish();

 private:
  struct Piece {
    EventPair times;
    Record record;
  };

  Accelerator& accelerator_;
  Trace& trace_;
  std::unique_ptr<Event> base_;  // the device's event from which its times are counted
  double base_seconds_;          // the trace's time when base_ was recorded
  std::vector<Piece> pieces_;
  std::vector<size_t> open_;  // the indices of the pieces without an end
};

}  // namespace tessera
