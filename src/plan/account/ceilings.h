#pragma once

#include "base/file.h"
#include "plan/account/step_account.h"

namespace tessera {

/// The sources of the ceilings of an account. The first source that knows a ceiling decides: the
/// user's figure, then the hardware file, then (for matrix products) the run's own peak.
struct CeilingSources {
  double gemm_flops = 0;    ///< per second; 0 if the user gives none
  double memory_bytes = 0;  ///< per second; 0 if the user gives none
  fs::path hardware;        ///< the file that `bench all` wrote; empty if none
  /// True to measure the peak of matrix products here, too. The higher of it and the run's is
  /// taken, because the run may have begun on a busy machine.
  bool measure = false;
};

/// Returns the ceilings for a trace. The memory's ceiling from the hardware file is that of the
/// best loop over the file's largest working set.
///
/// Throws Error when something is to be taken from the file and the file was measured on another
/// accelerator or processor than the trace's, or with another number of threads, has products but
/// none in the trace's precision, or has bandwidths but none of `update`.
Ceilings find_ceilings(const TraceOrigin& origin, const CeilingSources& sources);

}  // namespace tessera
