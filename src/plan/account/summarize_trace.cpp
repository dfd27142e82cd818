#include "plan/account/summarize_trace.h"

#include "base/affinity.h"
#include "plan/account/product_timer.h"

namespace tessera {

StepAccount summarize_trace(const fs::path& run_or_file, const CeilingSources& sources) {
  const StepTrace trace =
      read_trace(is_folder(run_or_file) ? run_or_file / "trace.json" : run_or_file);
  // Made first, because it throws on another machine, before anything is measured.
  const ProductTimer timer = sources.measure ? measuring_timer(trace.origin) : ProductTimer();
  // A step's threads are bound unless run.bind_threads is false, so these are bound, too.
  const BoundTeam team(sources.measure ? trace.origin.threads : 1);
  return account_for(trace, find_ceilings(trace.origin, sources), timer);
}

}  // namespace tessera
