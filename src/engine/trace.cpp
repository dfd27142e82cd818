#include "engine/trace.h"

#include <utility>

#include "base/error.h"

namespace tessera {

double Trace::now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

void Trace::set_clock(double seconds) {
  start_ = Clock::now() -
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
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
  const std::vector<Spec> outputs = program.specs(node.outputs);
  const Cost cost = node.operation->cost(program.specs(node.inputs), outputs);
  event_ = {.name = std::string(node.operation->name()),
            .block = std::string(block_name(node.block)),
            .phase = std::string(phase_name(node.phase)),
            .layer = node.layer,
            .start = start,
            .flops = cost.flops,
            .backward_flops = cost.backward_flops,
            .repeated_flops = cost.repeated_flops,
            .bytes = cost.bytes,
            .shape = outputs.empty() ? "" : outputs[0].shape.text(),
            .products = {}};
  trace_->set_clock(start);
}

Trace::Span::Span(Trace* trace, std::string_view name, std::string_view block, double bytes)
    : trace_(trace) {
  if (trace_ == nullptr) return;
  event_.name = name;
  event_.block = block;
  event_.phase = "step";
  event_.bytes = bytes;
  event_.start = trace_->now();
}

Trace::Span::~Span() {
  if (trace_ == nullptr) return;
  const double end = trace_->now();
  event_.duration = end - event_.start;
  event_.products = trace_->products_.take();
  trace_->step_.events.push_back(std::move(event_));
  trace_->set_clock(end);
}

}  // namespace tessera
