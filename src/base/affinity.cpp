#include "base/affinity.h"

#include <cstdlib>
#include <initializer_list>
#include <vector>

#include <sched.h>

#include "base/parallel.h"

namespace tessera {
namespace {

cpu_set_t core_set_of_this_thread() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof(cores), &cores) != 0) CPU_ZERO(&cores);
  return cores;
}

/// Returns the cores that this process may use, read before any thread is bound here. The set is
/// empty if the system does not say or has more cores than the set can hold.
const cpu_set_t& core_set_at_start() {
  static const cpu_set_t cores = core_set_of_this_thread();
  return cores;
}

bool user_binds_threads() {
  for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

/// Binds the calling thread to `cores`. Ignores errors: if a core has gone offline meanwhile, the
/// thread keeps the cores that it had.
void set_cores(const cpu_set_t& cores) { ::sched_setaffinity(0, sizeof(cores), &cores); }

}  // namespace

std::vector<int> cores_at_start() {
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &core_set_at_start())) cores.push_back(core);
  }
  return cores;
}

BoundTeam::BoundTeam(int team_threads, int team_index, int team_count) {
  const std::vector<int> cores = cores_at_start();
  const int bound_threads = team_threads * team_count;
  if (bound_threads < 2 || cores.size() != static_cast<size_t>(bound_threads) ||
      user_binds_threads()) {
    return;
  }
  threads_ = team_threads;
  // There are as many ranges as threads, so each thread of the team binds itself.
  parallel_ranges(team_threads, team_threads, 1, [&](int64_t begin, int64_t, int) {
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(cores[static_cast<size_t>(team_index * team_threads + begin)], &core);
    set_cores(core);
  });
}

BoundTeam::~BoundTeam() {
  if (bound()) {
    parallel_ranges(threads_, threads_, 1, [](int64_t, int64_t, int) { run_on_any_core(); });
  }
}

void run_on_any_core() {
  if (CPU_COUNT(&core_set_at_start()) > 0) set_cores(core_set_at_start());
}

}  // namespace tessera
