#include <exception>
#include <future>
#include <list>
#include <mutex>
#include <system_error>

#include "base/error.h"
#include "base/thread.h"
#include "comm/in_process/world.h"

namespace tessera {
namespace {

/// Starts a thread for each rank, or throws Error.
void start_threads(std::list<Thread>& threads, int ranks, const std::function<void(int)>& body) {
  for (int rank = 0; rank < ranks; ++rank) {
    try {
      threads.emplace_back([&body, rank] { body(rank); });
    } catch (const std::system_error& error) {
      throw Error(
          "cannot start the thread of rank {} of {} ({}); give fewer --ranks, or raise the limits "
          "on processes (ulimit -u, pids.max) or memory (ulimit -v)",
          rank, ranks, error.code().message());
    }
  }
}

}  // namespace

void run_ranks(World& world, const std::function<void(int rank)>& body) {
  std::mutex mutex;  // guards first_error
  std::exception_ptr first_error;
  const auto keep_error = [&] {
    const std::scoped_lock lock(mutex);
    if (!first_error) first_error = std::current_exception();
  };
  // Holds threads back until all of them are started. If a thread cannot be started, none runs its
  // rank: the others would wait for it.
  std::promise<bool> gate;
  const std::shared_future<bool> all_started = gate.get_future().share();
  const std::function<void(int)> run_rank = [&](int rank) {
    if (!std::shared_future<bool>(all_started).get()) return;
    // Keeps the error before the other ranks learn of the failure, because they throw errors then.
    try {
      body(rank);
      world.end(rank);
    } catch (const std::exception& error) {
      keep_error();
      world.fail(rank, error.what());
    } catch (...) {
      keep_error();
      world.fail(rank, "an unknown error");
    }
  };
  {
    std::list<Thread> threads;  // joined before the variables above go out of scope
    try {
      start_threads(threads, world.ranks(), run_rank);
      gate.set_value(true);
    } catch (...) {
      keep_error();
      gate.set_value(false);
    }
  }
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace tessera
