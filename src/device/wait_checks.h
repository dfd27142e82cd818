#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace tessera {

/// Checks that the host makes now and then while it waits for a device. A device's work may wait
/// for another device that never comes; a check then ends the host's wait by throwing Error. Any
/// thread may call any function.
class WaitChecks {
 public:
  using Check = std::function<void(std::chrono::nanoseconds waited)>;

  /// Adds a check. It is made until the returned object is destroyed.
  [[nodiscard]] std::shared_ptr<void> add(Check check) {
    auto owner = std::make_shared<Check>(std::move(check));
    const std::scoped_lock lock(mutex_);
    checks_.emplace_back(owner);
    return owner;
  }

  /// Returns whether there is a check to make. If not, the host may use the device's own wait.
  bool any() const {
    const std::scoped_lock lock(mutex_);
    checks_.remove_if([](const auto& check) { return check.expired(); });
    return !checks_.empty();
  }

  /// Makes all checks, with the time that the wait has lasted, then throws the first error that one
  /// of them threw. All are made even after an error, because each may have something to end. The
  /// mutex is not held meanwhile, so a check may add or remove checks.
  void make(std::chrono::nanoseconds waited) const {
    std::list<std::weak_ptr<Check>> checks;
    {
      const std::scoped_lock lock(mutex_);
      checks = checks_;
    }
    std::exception_ptr error;
    for (const auto& weak : checks) {
      try {
        if (const auto check = weak.lock()) (*check)(waited);
      } catch (...) {
        if (!error) error = std::current_exception();
      }
    }
    if (error) std::rethrow_exception(error);
  }

  /// Waits until done() returns true, and makes the checks meanwhile.
  template <typename Done>
  void wait(Done&& done) const {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::microseconds kPause{20};  // short compared with a training step
    constexpr std::chrono::milliseconds kCheckEvery{100};
    const Clock::time_point begun = Clock::now();
    Clock::time_point last = begun;
    while (!done()) {
      const Clock::time_point now = Clock::now();
      if (now - last >= kCheckEvery) {
        make(now - begun);
        last = now;
      }
      std::this_thread::sleep_for(kPause);
    }
  }

 private:
  mutable std::mutex mutex_;  // guards checks_
  mutable std::list<std::weak_ptr<Check>> checks_;
};

}  // namespace tessera
