#include <atomic>
#include <exception>
#include <list>
#include <mutex>
#include <system_error>

#include "base/error.h"
#include "base/thread.h"
#include "comm/in_process/world.h"

namespace tessera {
namespace {

/// The earliest error of several threads.
class FirstError {
 public:
  /// Keeps the exception that is being handled, unless there is one already.
  void keep() {
    const std::scoped_lock lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

/// Runs one rank. Keeps its error before the other ranks are told of the failure: their errors
/// follow from it.
void run_rank(World& world, int rank, const std::function<void(int)>& body, FirstError& first) {
  try {
    body(rank);
  } catch (const std::exception& error) {
    first.keep();
    world.fail(rank, error.what());
  } catch (...) {
    first.keep();
    world.fail(rank, "an unknown error");
  }
}

/// Holds threads back until all of them are started. If a thread cannot be started, none runs its
/// rank: the others would wait for it.
class Gate {
 public:
  void open(bool all_started) {
    state_ = all_started ? State::all_started : State::failed;
    state_.notify_all();
  }
  /// Waits until the gate is open, and returns whether all threads are started.
  bool all_started() const {
    state_.wait(State::closed);
    return state_ == State::all_started;
  }

 private:
  enum class State { closed, all_started, failed };
  std::atomic<State> state_{State::closed};
};

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
  FirstError first;
  Gate gate;
  const auto body_to_end = [&](int rank) {
    body(rank);
    world.end(rank);
  };
  const std::function<void(int)> run_one = [&](int rank) {
    if (gate.all_started()) run_rank(world, rank, body_to_end, first);
  };
  {
    std::list<Thread> threads;  // joined before the variables above go out of scope
    try {
      start_threads(threads, world.ranks(), run_one);
      gate.open(/*all_started=*/true);
    } catch (...) {
      first.keep();
      gate.open(/*all_started=*/false);
    }
  }
  first.rethrow();
}

}  // namespace tessera
