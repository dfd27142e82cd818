#pragma once

#include <vector>

namespace tessera {

/// A guard that binds each thread of a team to a core of its own until the guard is destroyed. The
/// system then does not move a thread away from the data in its caches. A team is the calling
/// thread and the threads that OpenMP starts for its parallel loops.
///
/// Nothing is bound unless this process may use exactly as many cores as all teams have threads.
/// With cores to spare, a bound thread could not move away from a core that another program uses.
/// Nothing is bound either if the user has bound OpenMP's threads (OMP_PROC_BIND, OMP_PLACES,
/// GOMP_CPU_AFFINITY). Threads that a bound thread starts are bound to the same core, unless they
/// call run_on_any_core().
class BoundTeam {
 public:
  /// Binds one of `team_count` teams of equal size. The first team takes the first cores.
  explicit BoundTeam(int team_threads, int team_index = 0, int team_count = 1);
  ~BoundTeam();
  BoundTeam(const BoundTeam&) = delete;
  BoundTeam& operator=(const BoundTeam&) = delete;

  /// Returns whether the threads are bound.
  bool bound() const { return threads_ > 0; }

 private:
  int threads_ = 0;  // the number of bound threads
};

/// Returns the cores that this process could use when it was started; empty if unknown.
std::vector<int> cores_at_start();

/// Lets the calling thread run on all cores that the program was started on. Background threads
/// call it because they must not wait for the core of the thread that started them.
void run_on_any_core();

}  // namespace tessera
