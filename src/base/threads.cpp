#include "base/threads.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <omp.h>

#include "base/error.h"
#include "base/usable_cores.h"

namespace tessera {
namespace {

/// Threads that all exist at once and wait until stop() ends them.
class WaitingThreads {
 public:
  ~WaitingThreads() { stop(); }
  /// Starts one more thread. Throws std::system_error if the system refuses it.
  void add() {
    threads_.emplace_back([this] { stopped_.wait(false); });
  }
  size_t size() const { return threads_.size(); }
  void stop() {
    stopped_.store(true);
    stopped_.notify_all();
    threads_.clear();  // waits for them
  }

 private:
  std::atomic<bool> stopped_{false};
  std::vector<std::jthread> threads_;
};

/// Throws Error unless this process can start that many threads. It starts them to find out: the
/// number depends on limits of the user, of the address space, of the control group and of the
/// machine, and on what else is running.
void require_startable(int threads, const UsableCores& cores) {
  WaitingThreads started;
  try {
    // The calling thread is one of the team, so one fewer is started.
    while (static_cast<int>(started.size()) < threads - 1) started.add();
  } catch (const std::system_error& error) {
    const size_t startable = started.size() + 1;
    started.stop();
    throw Error(
        "{} threads were asked for, but the system lets this process have {} ({}); ask for less (0 "
        "stands for the {} that it may use), or raise its limits on processes (ulimit -u, "
        "pids.max) or memory (ulimit -v)",
        threads, startable, error.code().message(), cores.text());
  }
}

}  // namespace

TeamLimit team_limit() {
  if (omp_get_max_active_levels() == 0) {  // every parallel loop then runs on one thread
    return {.threads = 1, .variable = "OMP_MAX_ACTIVE_LEVELS", .value = 0};
  }
  const int threads = omp_get_thread_limit();
  if (threads >= kMostThreads) return {.threads = kMostThreads};
  return {.threads = threads, .variable = "OMP_THREAD_LIMIT", .value = threads};
}

int threads_or_all(int wanted, std::string_view setting) {
  const UsableCores cores = usable_cores();
  if (wanted > kMostThreads) {
    throw Error(
        "{} threads were asked for; expected at most {}: this process may use {}, for which 0 "
        "stands",
        wanted, kMostThreads, cores.text());
  }
  const TeamLimit limit = team_limit();
  if (wanted > limit.threads) {
    throw Error(
        "{} is {}, but {} is {} in the environment, with which OpenMP computes on at most {} at "
        "once; ask for that many or for 0, or change the variable",
        setting, wanted, limit.variable, limit.value,
        limit.threads == 1 ? "1 thread" : fmt::format("{} threads", limit.threads));
  }
  const int threads = wanted > 0 ? wanted : std::min(cores.count, limit.threads);
  require_startable(threads, cores);
  return threads;
}

}  // namespace tessera
