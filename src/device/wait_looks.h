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

/// The looks of a device: checks that the host makes now and then while it waits for the device.
/// Work that waits for other devices may never end; a look then ends the host's wait by throwing
/// Error. Any thread may call any function.
class WaitLooks {
 public:
  using Look = std::function<void(std::chrono::nanoseconds waited)>;

  /// Adds a look. It stays until the returned object is destroyed.
  [[nodiscard]] std::shared_ptr<void> add(Look look) {
    auto kept = std::make_shared<Look>(std::move(look));
    const std::scoped_lock lock(mutex_);
    looks_.emplace_back(kept);
    return kept;
  }

  bool any() const {
    const std::scoped_lock lock(mutex_);
    looks_.remove_if([](const auto& look) { return look.expired(); });
    return !looks_.empty();
  }

  /// Calls all looks with the time that the wait has lasted, then throws the first error that one
  /// of them threw. All are called even after an error, because each may have something to end.
  void take(std::chrono::nanoseconds waited) const {
    std::list<std::weak_ptr<Look>> looks;
    {
      const std::scoped_lock lock(mutex_);
      looks = looks_;
    }
    std::exception_ptr error;
    for (const auto& weak : looks) {
      try {
        if (const auto look = weak.lock()) (*look)(waited);
      } catch (...) {
        if (!error) error = std::current_exception();
      }
    }
    if (error) std::rethrow_exception(error);
  }

  /// Waits until done() returns true, and calls the looks meanwhile.
  template <typename Done>
  void wait(Done&& done) const {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::microseconds kPause{20};  // short compared with a training step
    constexpr std::chrono::milliseconds kLook{100};
    const Clock::time_point begun = Clock::now();
    Clock::time_point last = begun;
    while (!done()) {
      const Clock::time_point now = Clock::now();
      if (now - last >= kLook) {
        take(now - begun);
        last = now;
      }
      std::this_thread::sleep_for(kPause);
    }
  }

 private:
  mutable std::mutex mutex_;  // guards looks_
  mutable std::list<std::weak_ptr<Look>> looks_;
};

}  // namespace tessera
