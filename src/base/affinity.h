#pragma once

#include <vector>

namespace tessera {

/// A guard that binds each thread of an OpenMP team, that of the calling thread, to a core of its
/// own until it is destroyed. The system then does not move a thread away from the data in its
/// caches. Several teams of one size share the cores: the first team takes the first cores.
///
/// Nothing is bound unless this process may use exactly as many cores as the teams have threads:
/// with fewer threads than cores, another program may be on any of them. Nothing is bound either if
/// the user has bound OpenMP's threads (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY). Threads that
/// a bound thread starts are bound to its core too, unless they call run_on_any_core().
class BoundTeam {
 public:
  explicit BoundTeam(int threads, int team = 0, int teams = 1);
  ~BoundTeam();
  BoundTeam(const BoundTeam&) = delete;
  BoundTeam& operator=(const BoundTeam&) = delete;

  /// Returns whether it bound the threads.
  bool bound() const { return threads_ > 0; }

 private:
  int threads_ = 0;  // the number of bound threads
};

/// Returns the cores that this process could use when it was started; empty if the system does not
/// say.
std::vector<int> cores_at_start();

/// Lets the calling thread run on all cores that the program was started on. Background threads
/// call it because they must not wait for the core of the thread that started them.
void run_on_any_core();

}  // namespace tessera
