#pragma once

#include <chrono>
#include <string>
#include <thread>

namespace tessera {

/// A timer that prints an error and ends the process if it is not destroyed in time; the launcher
/// then ends the other processes. It guards MPI_Init, MPI_Finalize and MPI_Comm_create_group, which
/// wait for other processes without a limit.
class MeetingWatch {
 public:
  /// Starts the timer. `why` is the text of the error.
  MeetingWatch(std::string why, std::chrono::milliseconds patience);

 private:
  std::jthread thread_;
};

}  // namespace tessera
