#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "comm/launch.h"

namespace tessera {

/// A timer that prints an error and ends the process if it is not destroyed in time; the launcher
/// then ends the other processes. It guards MPI_Init, MPI_Finalize and MPI_Comm_create_group, which
/// wait for other processes without a limit. During these calls the processes cannot ask each other
/// (MpiNews).
class MeetingWatch {
 public:
  /// Starts the timer. `why` is the text of the error.
  MeetingWatch(std::string why, std::chrono::milliseconds patience);

 private:
  std::jthread thread_;
};

/// Returns a watch over MPI_Init. Each process that has come prints an error after `patience`, so
/// the processes that print nothing are the missing ones.
MeetingWatch watch_start(const Launch& launch, std::chrono::milliseconds patience);

/// Returns a watch over MPI_Finalize. The rank calls that function after all ranks have said that
/// their work has ended. `rank` is its name in messages.
MeetingWatch watch_end(std::string_view rank, std::chrono::milliseconds patience);

/// Returns a watch over MPI_Comm_create_group. The rank calls that function after all ranks of the
/// group have asked for it. `rank` and `group` are their names in messages.
MeetingWatch watch_group(std::string_view rank, std::string_view group,
                         std::chrono::milliseconds patience);

}  // namespace tessera
