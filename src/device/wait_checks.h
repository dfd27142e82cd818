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

/// Checks that the host runs now and then while it waits for a device. The device's work may wait
/// for another device that never comes. A check then ends the host's wait by throwing Error. Any
/// thread may call any function.
class WaitChecks {
 public:
  using Check = std::function<void(std::chrono::nanoseconds waited)>;

  /// Adds a check. It is run in each wait until the returned object is destroyed.
  [[nodiscard]] std::shared_ptr<void> add(Check check) {
    auto owner = std::make_shared<Check>(std::move(check));
    const std::scoped_lock lock(mutex_);
    checks_.emplace_back(owner);
    return owner;
  }

  /// Returns whether there is a check to run. If not, the host may use the device's own wait.
  bool any() const {
    const std::scoped_lock lock(mutex_);
    checks_.remove_if([](const auto& check) { return check.expired(); });
    return !checks_.empty();
  }

  /// Runs all checks. `waited` is how long the wait has lasted. Then throws the first error that a
  /// check threw: after it the other checks still run, because each may have work to abort. The
  /// mutex is not held meanwhile, so a check may add or remove checks.
  void run_all(std::chrono::nanoseconds waited) const {
    std::list<std::weak_ptr<Check>> checks;
    {
      const std::scoped_lock lock(mutex_);
      checks = checks_;
    }
    std::exception_ptr first_error;
    for (const auto& weak : checks) {
      try {
        if (const auto check = weak.lock()) (*check)(waited);
      } catch (...) {
        if (!first_error) first_error = std::current_exception();
      }
    }
    if (first_error) std::rethrow_exception(first_error);
  }

  /// Waits until is_done() returns true, and runs the checks meanwhile. Throws what they throw.
  template <typename Done>
  void wait(Done&& is_done) const {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::microseconds kPause{20};  // short compared with a training step
    constexpr std::chrono::milliseconds kCheckInterval{100};
    const Clock::time_point begun = Clock::now();
    Clock::time_point last_check = begun;
    while (!is_done()) {
      const Clock::time_point now = Clock::now();
      if (now - last_check >= kCheckInterval) {
        run_all(now - begun);
        last_check = now;
      }
      std::this_thread::sleep_for(kPause);
    }
  }

 private:
  mutable std::mutex mutex_;  // guards checks_
  mutable std::list<std::weak_ptr<Check>> checks_;
};

}  // namespace tessera
