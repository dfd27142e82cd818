#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/step_trace.h"
#include "program/program.h"

namespace tessera {

/// Records one training step: what ran when, what it costs by its statement, and which matrix
/// products it really took. The clock stands still while an event is described, so that recording
/// does not show in the record.
class Trace {
 public:
  /// Seconds since some moment.
  using Clock = std::function<double()>;

  /// Counts the runtime's matrix products while it lives; the runtime must outlive it. Times are
  /// the processor's, or another clock's.
  explicit Trace(Runtime& runtime, Clock clock = {});

  /// The whole step while it lives: events lie within it. Does nothing when `trace` is null.
  class Step {
   public:
    Step(Trace* trace, int64_t number);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    Trace* trace_;
  };

  /// Times one node while it lives; does nothing when `trace` is null. Spans do not overlap.
  class Span {
   public:
    Span(Trace* trace, const Program& program, const Node& node);
    /// Times something that is no node of a program: the optimizer, reading data. `bytes`: what it
    /// reads and writes, where that says how long it should take.
    Span(Trace* trace, std::string_view name, std::string_view block, double bytes = 0);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Trace* trace_;
    TraceEvent event_;
  };

  /// Adds what was timed elsewhere, by a device's events: its times are seconds since the trace
  /// began.
  void add(TraceEvent event) { step_.events.push_back(std::move(event)); }

  /// What was recorded.
  const StepTrace& step() const { return step_; }

 private:
  /// Seconds since the trace began, without those in which the clock stood still.
  double now() const;
  /// Goes on from `seconds`.
  void set_clock(double seconds);

  Clock clock_;
  double start_;
  GemmCounter products_;
  StepTrace step_;
};

}  // namespace tessera
