#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "comm/launch.h"

namespace tessera {

/// A timer that prints an error and ends the process if it is not destroyed in time. It guards
/// MPI_Init and MPI_Finalize, which wait for all processes without a limit: there the processes
/// cannot ask each other (MpiNews). The launcher then ends the other processes.
class MeetingWatch {
 public:
  /// Starts the watch. `why` follows "tessera: error: ".
  MeetingWatch(std::string why, std::chrono::milliseconds patience);

 private:
  std::jthread thread_;
};

/// Returns a watch over the first meeting of the processes of a run. Each process that has come
/// prints an error after `patience`: those that print nothing are missing.
MeetingWatch watch_start(const Launch& launch, std::chrono::milliseconds patience);

/// Returns a watch over MPI_Finalize, which `rank` calls after all ranks have said that their work
/// has ended.
MeetingWatch watch_end(std::string_view rank, std::chrono::milliseconds patience);

}  // namespace tessera
