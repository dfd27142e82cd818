#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>

namespace tessera {

/// A thread that lets MPI move posted messages while this process computes, or waits elsewhere: MPI
/// moves data only in calls of MPI. In times of messages it polls a thousand times a second, and
/// else four times.
class MpiProgress {
 public:
  MpiProgress() : thread_([this](const std::stop_token& stop) { run(stop); }) {}

  /// Counts a message that is posted, and one that has moved.
  void begin_message();
  void end_message() { --messages_; }

  /// Ends the thread, before MPI ends.
  void stop();

 private:
  void run(const std::stop_token& stop);

  std::atomic<int> messages_ = 0;
  std::atomic<bool> is_idle_ = false;  // the thread polls four times a second
  std::mutex mutex_;
  std::condition_variable_any posted_;
  std::jthread thread_;
};

}  // namespace tessera
