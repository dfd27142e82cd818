#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "comm/launch.h"

namespace tessera {

/// Ends the process if it is not destroyed in time. It stands beside calls of MPI that wait for all
/// processes for ever, where no other thread can ask them any more or yet. Says why before. The
/// launcher then ends the other processes.
class MeetingWatch {
 public:
  /// `why` follows "tessera: error: ".
  MeetingWatch(std::string why, std::chrono::milliseconds patience);

 private:
  std::jthread thread_;
};

/// Watches the processes of a run as they meet for the first time. Each that has come speaks: those
/// that say nothing are missing.
MeetingWatch watch_start(const Launch& launch, std::chrono::milliseconds patience);

/// Watches MPI_Finalize, which `rank` calls after all ranks have said that their work has ended.
MeetingWatch watch_end(std::string_view rank, std::chrono::milliseconds patience);

}  // namespace tessera
