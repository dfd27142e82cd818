#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/in_process/world.h"

namespace tessera {
namespace {

/// The first error of several threads.
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

/// Runs one rank. Its error is kept before the others hear of it: theirs come later.
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

}  // namespace

void run_ranks(World& world, const std::function<void(int rank)>& body) {
  FirstError first;
  const auto run = [&](int rank) {
    body(rank);
    world.end(rank);
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<size_t>(world.ranks()));
    for (int rank = 0; rank < world.ranks(); ++rank) {
      run_rank(
          world, rank,
          [&](int) { threads.emplace_back([&, rank] { run_rank(world, rank, run, first); }); },
          first);
    }
  }
  first.rethrow();
}

}  // namespace tessera
