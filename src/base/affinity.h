#pragma once

namespace tessera {

/// Binds each thread of the calling thread's team of `threads` to a core of its own for as long as
/// it lives, so that the system does not move one away from what it has in its caches. It does so
/// where this process may use exactly so many cores: with fewer threads than cores another program,
/// or another rank, may be on any of them. Where the user has bound OpenMP's threads
/// (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY), that stays. Threads that a bound thread starts
/// are bound to its core with it, unless they call run_on_any_core().
class BoundTeam {
 public:
  explicit BoundTeam(int threads);
  ~BoundTeam();
  BoundTeam(const BoundTeam&) = delete;
  BoundTeam& operator=(const BoundTeam&) = delete;

  /// Whether it bound the threads.
  bool bound() const { return threads_ > 0; }

 private:
  int threads_ = 0;  // those bound
};

/// Lets the calling thread run on all cores that the program was started on: for threads in the
/// background, which must not wait for the core of the thread that starts them.
void run_on_any_core();

}  // namespace tessera
