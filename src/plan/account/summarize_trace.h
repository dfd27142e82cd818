#pragma once

#include "base/file.h"
#include "plan/account/ceilings.h"

namespace tessera {

/// Reads a trace from a run's folder or from a file, and returns the account of its step. If the
/// sources say `measure`, times each of the step's matrix products alone, on threads bound like a
/// step's. Throws Error as read_trace() and find_ceilings() do, and before anything is measured if
/// the trace comes from another machine.
StepAccount summarize_trace(const fs::path& run_or_file, const CeilingSources& sources);

}  // namespace tessera
