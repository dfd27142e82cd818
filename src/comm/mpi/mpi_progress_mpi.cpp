#include "comm/mpi/mpi_progress_mpi.h"

#include <chrono>

#include <mpi.h>

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kMessagePeriod{1};
constexpr std::chrono::milliseconds kIdlePeriod{250};
/// How long after the last message the thread goes on to poll often.
constexpr std::chrono::seconds kMessageTime{1};

}  // namespace

void MpiProgress::begin_message() {
  ++messages_;
  if (!is_idle_) return;
  const std::scoped_lock lock(mutex_);
  is_idle_ = false;
  posted_.notify_one();
}

void MpiProgress::stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void MpiProgress::run(const std::stop_token& stop) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_message;
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    // Waking this thread for each message would take longer than a small message.
    if (messages_ > 0) last_message = Clock::now();
    is_idle_ = Clock::now() - last_message > kMessageTime;
    // A message that is posted now sees is_idle_ and wakes this thread, or is counted here.
    posted_.wait_for(
        lock, stop, is_idle_ ? kIdlePeriod : kMessagePeriod,
        [this, was_idle = is_idle_.load()] { return was_idle && (!is_idle_ || messages_ > 0); });
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
  }
}

}  // namespace tessera
