#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace tessera {

/// What ran when. Written as JSON in the trace event format that Chrome (chrome://tracing) and
/// Perfetto (ui.perfetto.dev) open.
class Trace {
 public:
  struct Event {
    std::string name;
    std::string block;
    std::string phase;
    int layer = -1;
    double start = 0;     ///< seconds since the trace began
    double duration = 0;  ///< seconds
    double flops = 0;
    double bytes = 0;
    std::string shape;  ///< of the first output
  };

  /// Times one node while it lives; does nothing when `trace` is null.
  class Span {
   public:
    Span(Trace* trace, const Program& program, const Node& node);
    /// Times something that is no node of a program: the optimizer, reading data.
    Span(Trace* trace, std::string_view name, std::string_view block);
    ~Span();
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Trace* trace_;
    Event event_;
  };

  const std::vector<Event>& events() const { return events_; }
  /// Writes the file atomically; throws Error when it cannot.
  void write(const std::filesystem::path& path) const;

 private:
  double now() const;

  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<Event> events_;
};

}  // namespace tessera
