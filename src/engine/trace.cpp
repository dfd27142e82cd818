#include "engine/trace.h"

#include <nlohmann/json.hpp>

#include "base/file.h"

namespace tessera {

double Trace::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

Trace::Span::Span(Trace* trace, const Program& program, const Node& node) : trace_(trace) {
  if (trace_ == nullptr) return;
  const std::vector<Spec> outputs = program.specs(node.outputs);
  const Cost cost = node.operation->cost(program.specs(node.inputs), outputs);
  event_ = {.name = std::string(node.operation->name()),
            .block = std::string(block_name(node.block)),
            .phase = std::string(phase_name(node.phase)),
            .layer = node.layer,
            .flops = cost.flops,
            .bytes = cost.bytes,
            .shape = outputs.empty() ? "" : outputs[0].shape.text()};
  event_.start = trace_->now();
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
  event_.duration = trace_->now() - event_.start;
  trace_->events_.push_back(std::move(event_));
}

void Trace::write(const std::filesystem::path& path) const {
  constexpr double kMicroseconds = 1e6;
  nlohmann::json events = nlohmann::json::array();
  for (const Event& event : events_) {
    events.push_back({{"name", event.name},
                      {"cat", event.block},
                      {"ph", "X"},
                      {"ts", event.start * kMicroseconds},
                      {"dur", event.duration * kMicroseconds},
                      {"pid", 0},
                      {"tid", 0},
                      {"args",
                       {{"phase", event.phase},
                        {"layer", event.layer},
                        {"flops", event.flops},
                        {"bytes", event.bytes},
                        {"shape", event.shape}}}});
  }
  write_file(path, nlohmann::json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump(1));
}

}  // namespace tessera
