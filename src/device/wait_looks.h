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

/// What the host looks at now and then while it waits for a device. Work that waits for other
/// devices may never end, and then a look ends the host's wait by throwing Error. Any thread may
/// call any function.
class WaitLooks {
 public:
  using Look = std::function<void(std::chrono::nanoseconds waited)>;

  /// Adds a look, until the returned object is destroyed.
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

  /// Takes all looks of a wait that has lasted for so long, and then throws what the first of those
  /// threw that did: each may have something to end.
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

  /// Waits until done() says so, and takes the looks meanwhile.
  template <typename Done>
  void wait(Done&& done) const {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::microseconds kPause{20};  // short beside a step
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
  mutable std::mutex mutex_;  // of looks_
  mutable std::list<std::weak_ptr<Look>> looks_;
};

}  // namespace tessera
