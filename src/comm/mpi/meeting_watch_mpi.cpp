#include "comm/mpi/meeting_watch_mpi.h"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stop_token>
#include <utility>

#include <fmt/format.h>

#include "comm/call_errors.h"

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

MeetingWatch watch_start(const Launch& launch, std::chrono::milliseconds patience) {
  return {fmt::format(
              "rank {} ({}) is here, but {} not all of the {} processes that {} started are. "
              "Each that is here says so: find out what holds up the others, "
              "and whether their machines reach this one",
              launch.rank, own_host(), waited_text(patience), launch.processes, launch.launcher),
          patience};
}

MeetingWatch watch_end(std::string_view rank, std::chrono::milliseconds patience) {
  return {fmt::format("{} has done all of its work, but {} another rank is not in MPI_Finalize: it "
                      "is stopped, or cannot be reached",
                      rank, waited_text(patience)),
          patience};
}

MeetingWatch watch_group(std::string_view rank, std::string_view group,
                         std::chrono::milliseconds patience) {
  return {
      fmt::format("{} makes the {}, for which all of its ranks have asked, but {} one of them is "
                  "not in MPI_Comm_create_group: it is stopped, or cannot be reached. Each that is "
                  "there says so",
                  rank, group, waited_text(patience)),
      patience};
}

}  // namespace tessera
