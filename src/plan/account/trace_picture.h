#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/run_trace.h"

namespace tessera {

/// What a picture shows of a traced step.
struct TraceView {
  std::vector<int> ranks;      ///< in this order; empty: all of the trace
  std::optional<double> from;  ///< seconds after the first rank's start; none: that start
  std::optional<double> to;    ///< likewise; none: the end of the last rank's step
};

/// Returns an SVG document of the step, the same for equal traces: for each rank a row for each
/// lane that it used, over an axis of times. Pictures over the same time have the same scale.
/// `file` names the trace in errors. Throws Error if the trace lacks a rank of the view or does not
/// say which ranks are called, and if the view shows no time of the step.
std::string draw(const RunTrace& trace, const TraceView& view, const std::string& file);

}  // namespace tessera
