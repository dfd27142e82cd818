#include "comm/mpi/meeting_watch_mpi.h"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stop_token>
#include <utility>

#include <fmt/format.h>

namespace tessera {
namespace {

/// The time from the message to the end of this process. When one process ends, the launcher ends
/// all others, which should have printed their messages by then.
constexpr std::chrono::seconds kTimeToPrint{1};

[[noreturn]] void end_process(const std::string& why) {
  fmt::print(stderr, "tessera: error: {}\n", why);
  std::fflush(stderr);
  std::this_thread::sleep_for(kTimeToPrint);
  std::_Exit(1);
}

}  // namespace

MeetingWatch::MeetingWatch(std::string why, std::chrono::milliseconds patience)
    : thread_([why = std::move(why), patience](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any woken;
        std::unique_lock lock(mutex);
        const bool met =
            woken.wait_for(lock, stop, patience, [&] { return stop.stop_requested(); });
        if (!met) end_process(why);
      }) {}

}  // namespace tessera
