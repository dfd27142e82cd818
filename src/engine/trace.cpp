#include "engine/trace.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "base/monotonic.h"

namespace tessera {

Trace::Trace(Runtime& runtime, Clock clock)
    : clock_(clock ? std::move(clock) : monotonic_seconds), begin_(clock_()), products_(runtime) {}

TraceEvent Trace::event_of(const Program& program, const Node& node) {
  const std::vector<Spec> outputs = program.specs(node.outputs);
  const Cost cost = node_cost(program, node);
  double wire_bytes = 0;
  for (const WireBytes& wire : cost.wire) wire_bytes += wire.bytes;
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
          .products = {},
          .groups = groups_of(program, node),
          .wire_bytes = wire_bytes};
}

std::vector<int> Trace::groups_of(const Program& program, const Node& node) {
  const Mesh& mesh = program.mesh();
  std::array<std::set<int>, 2> by_view;  // indices of axes, from the innermost outwards
  for (const std::vector<Axis>& axes : node.operation->group_axes()) {
    for (const Axis axis : axes) {
      const bool dense = axis == mesh.pipeline() || mesh.info(axis).view == MeshView::dense;
      if (mesh.size(axis) > 1) by_view[dense ? 0 : 1].insert(axis.index);
    }
  }
  std::vector<int> groups;
  for (const std::set<int>& indices : by_view) {
    if (indices.empty()) continue;
    std::vector<Axis> axes;
    for (const int index : indices) axes.push_back({index});
    groups.push_back(group_index(program, axes, node.operation->group_stages()));
  }
  return groups;
}

int Trace::group_index(const Program& program, std::span<const Axis> axes,
                       std::span<const int> stages) {
  const Mesh& mesh = program.mesh();
  TraceGroup group{.axes = {}, .stages = {stages.begin(), stages.end()}};
  for (const Axis axis : axes) group.axes.push_back(mesh.name(axis));
  std::vector<TraceGroup>& groups = step_.groups;
  const auto known = std::ranges::find_if(groups, [&](const TraceGroup& other) {
    return other.axes == group.axes && other.stages == group.stages;
  });
  if (known != groups.end()) return static_cast<int>(known - groups.begin());
  std::vector<int> ranks = mesh.group(program.rank(), axes);
  if (!stages.empty()) {
    std::erase_if(ranks, [&](int rank) {
      return std::ranges::find(stages, mesh.stage(rank)) == stages.end();
    });
  }
  group.first_rank = std::ranges::min(ranks);
  group.ranks = static_cast<int>(ranks.size());
  groups.push_back(std::move(group));
  return static_cast<int>(groups.size()) - 1;
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

Trace::Span::Span(Trace* trace, const Program& program, const Node& node)
    : trace_(trace), program_(&program), node_(&node) {
  if (trace_ != nullptr) event_.start = trace_->now();
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
  const bool is_own_thread = trace_->is_own_thread();
  if (is_own_thread) trace_->take_products(event_);
  if (node_ != nullptr) {
    trace_->add(*program_, *node_, std::move(event_));
  } else {
    trace_->add(std::move(event_));
  }
  if (is_own_thread) trace_->step_.recording_seconds += trace_->now() - end;
}

void Trace::add(TraceEvent event) {
  const std::scoped_lock lock(mutex_);
  step_.events.push_back(std::move(event));
}

void Trace::add(const Program& program, const Node& node, double begin, double end) {
  TraceEvent event;
  event.start = begin - begin_;
  event.duration = end - begin;
  add(program, node, std::move(event));
}

void Trace::add(const Program& program, const Node& node, TraceEvent event) {
  const std::scoped_lock lock(mutex_);
  node_events_.push_back({step_.events.size(), &program, &node});
  step_.events.push_back(std::move(event));
}

const StepTrace& Trace::step() {
  for (const auto& [index, program, node] : node_events_) {
    TraceEvent& event = step_.events[index];
    TraceEvent described = event_of(*program, *node);
    described.start = event.start;
    described.duration = event.duration;
    described.products = std::move(event.products);
    event = std::move(described);
  }
  node_events_.clear();
  return step_;
}

TraceTimer::TraceTimer(Accelerator& accelerator, Stream& stream, Trace& trace)
    : accelerator_(accelerator), trace_(trace), base_(accelerator.make_event()) {
  stream.synchronize();
  // The trace's clock is read before the event is recorded. If it were read afterwards, a delay of
  // this thread would move all times to later ones, and work would seem to end after its step.
  base_seconds_ = trace_.now();
  stream.record(*base_);
  base_->synchronize();
  trace_.step_.clock_uncertainty = trace_.now() - base_seconds_;
}

void TraceTimer::begin(Stream& stream) {
  open_.push_back(pieces_.size());
  pieces_.push_back({.times = EventPair(accelerator_), .record = {}});
  pieces_.back().times.begin(stream);
}

void TraceTimer::end(Stream& stream, Record record) {
  TESSERA_CHECK(!open_.empty(), "the end of a piece of work that was not begun");
  Piece& piece = pieces_[open_.back()];
  open_.pop_back();
  piece.times.end(stream);
  piece.record = std::move(record);
}

void TraceTimer::end(Stream& stream, TraceEvent event) {
  end(stream, [this, event = std::move(event)](double start, double duration) mutable {
    event.start = start;
    event.duration = duration;
    trace_.add(std::move(event));
  });
}

void TraceTimer::finish() {
  TESSERA_CHECK(open_.empty(), "{} pieces of work have no end", open_.size());
  accelerator_.synchronize();
  for (const Piece& piece : pieces_) {
    // Both from one event: a device rounds times, and pieces that follow each other must not
    // overlap.
    const double begin = piece.times.begin_since(*base_);
    piece.record(base_seconds_ + begin, piece.times.end_since(*base_) - begin);
  }
  pieces_.clear();
}

}  // namespace tessera
