#include "engine/trace.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "program/node_cost.h"

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

int StepTrace::number_of(const GemmShape& product) {
  const auto found = std::ranges::find(products, product);
  if (found != products.end()) return static_cast<int>(found - products.begin());
  products.push_back(product);
  return static_cast<int>(products.size()) - 1;
}

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
    event.products.push_back({step_.number_of(product.shape), product.runs});
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

}  // namespace tessera
