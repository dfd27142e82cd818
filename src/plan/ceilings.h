#pragma once

#include "base/file.h"
#include "plan/step_account.h"

namespace tessera {

/// Where the ceilings of an account come from, the first that knows one deciding: what the user
/// says, the hardware file, and for matrix products the run's own peak.
struct CeilingSources {
  double gemm_flops = 0;    ///< a second; 0: not said
  double memory_bytes = 0;  ///< a second; 0: not said
  fs::path hardware;        ///< what `bench all` wrote; empty: none
  /// Measures the peak of matrix products here and takes it where it is above the run's: the run
  /// may have begun on a busy machine.
  bool measure = false;
};

/// The ceilings for a trace. The memory's is that of the best loop over the hardware file's largest
/// working set. Throws Error when something is to be taken from the file and it was measured on
/// another processor than the trace's or with another number of threads, has products but none in
/// the trace's precision, or bandwidths but none of `update`.
Ceilings find_ceilings(const TraceOrigin& origin, const CeilingSources& sources);

}  // namespace tessera
