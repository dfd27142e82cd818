#include "comm/mpi/mpi_progress_mpi.h"

#include <chrono>

#include <mpi.h>

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kMessagePeriod{1};
constexpr std::chrono::milliseconds kIdlePeriod{250};

}  // namespace

void MpiProgress::begin_message() {
  if (messages_++ == 0) posted_.notify_one();
}

void MpiProgress::stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void MpiProgress::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const bool idle = messages_ == 0;
    posted_.wait_for(lock, stop, idle ? kIdlePeriod : kMessagePeriod,
                     [&] { return idle && messages_ > 0; });
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
  }
}

}  // namespace tessera
