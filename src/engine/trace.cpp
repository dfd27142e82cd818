#include "engine/trace.h"

#include <chrono>

#include "base/error.h"

namespace tessera {
namespace {

double processor_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Trace::Trace(Runtime& runtime, Clock clock)
    : clock_(clock ? std::move(clock) : processor_seconds), start_(clock_()), products_(runtime) {}

double Trace::now() const { return clock_() - start_; }

void Trace::set_clock(double seconds) { start_ = clock_() - seconds; }

TraceEvent Trace::event_of(const Program& program, const Node& node) {
  const std::vector<Spec> outputs = program.specs(node.outputs);
  const Cost cost = node_cost(program, node);
  return {.name = std::string(node.operation->name()),
          .block = std::string(word(node.block)),
          .phase = std::string(word(node.phase)),
          .layer = node.layer,
          .lane = node.operation->lane(),
          .flops = cost.flops,
          .backward_flops = cost.backward_flops,
          .repeated_flops = cost.repeated_flops,
          .bytes = cost.bytes,
          .shape = outputs.empty() ? "" : outputs[0].shape.text(),
          .products = {}};
}

void Trace::take_products(TraceEvent& event) {
  for (const GemmRuns& product : products_.take()) {
    event.products.push_back({step_.index_of(product.shape), product.runs});
  }
}

Trace::Step::Step(Trace* trace, int64_t number) : trace_(trace) {
  if (trace_ == nullptr) return;
  TESSERA_CHECK(trace_->step_.number == 0, "a second step in one trace");
  trace_->step_.number = number;
  trace_->step_.start = trace_->now();
}

Trace::Step::~Step() {
  if (trace_ != nullptr) trace_->step_.duration = trace_->now() - trace_->step_.start;
}

Trace::Span::Span(Trace* trace, const Program& program, const Node& node) : trace_(trace) {
  if (trace_ == nullptr) return;
  const double start = trace_->now();
  event_ = event_of(program, node);
  event_.start = start;
  trace_->set_clock(start);
}

Trace::Span::Span(Trace* trace, std::string_view name, std::string_view block) : trace_(trace) {
  if (trace_ == nullptr) return;
  event_.name = name;
  event_.block = block;
  event_.phase = "step";
  event_.start = trace_->now();
}

Trace::Span::~Span() {
  if (trace_ == nullptr) return;
  const double end = trace_->now();
  event_.duration = end - event_.start;
  trace_->take_products(event_);
  trace_->step_.events.push_back(std::move(event_));
  trace_->set_clock(end);
}

TraceTimer::TraceTimer(Accelerator& accelerator, Stream& stream, Trace& trace)
    : accelerator_(accelerator), trace_(trace), base_(accelerator.make_event()) {
  stream.synchronize();
  // The trace's clock is read before the event is recorded. If it were read afterwards, a delay of
  // this thread would move all times to later ones, and work would seem to end after its step.
  base_seconds_ = trace_.now();
  stream.record(*base_);
  base_->synchronize();
}

void TraceTimer::begin(Stream& stream) {
  pieces_.push_back({.times = EventPair(accelerator_), .event = {}});
  pieces_.back().times.begin(stream);
}

void TraceTimer::end(Stream& stream, TraceEvent event) {
  pieces_.back().times.end(stream);
  pieces_.back().event = std::move(event);
}

void TraceTimer::finish() {
  accelerator_.synchronize();
  for (Piece& piece : pieces_) {
    piece.event.start = base_seconds_ + piece.times.begin_since(*base_);
    piece.event.duration = piece.times.seconds();
    trace_.add(std::move(piece.event));
  }
  pieces_.clear();
}

}  // namespace tessera
