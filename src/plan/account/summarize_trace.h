#pragma once

#include "base/file.h"
#include "plan/account/ceilings.h"

namespace tessera {

/// Reads a trace, from a run's folder or its file, and returns the account of its step. If the
/// sources say `measure`, each of the step's matrix products is timed too, alone, on threads bound
/// as a step's are. Throws Error as read_trace() and find_ceilings() do, and before anything is
/// measured if this is not the machine that the trace comes from.
StepAccount summarize_trace(const fs::path& run_or_file, const CeilingSources& sources);

}  // namespace tessera
