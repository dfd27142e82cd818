#include "comm/mpi/start_watch_mpi.h"

#include <array>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stop_token>

#include <fmt/format.h>
#include <unistd.h>

namespace tessera {
namespace {

/// The launcher ends all processes when the first one ends. The others are to speak before.
constexpr std::chrono::seconds kSpeakersTime{1};

[[noreturn]] void end_start(const Launch& launch, std::chrono::milliseconds patience) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  fmt::print(stderr,
             "tessera: error: rank {} ({}) is here, but after {:g} s not all of the {} processes "
             "that {} started are. Each that is here says so: find out what holds up the others, "
             "and whether their machines reach this one\n",
             launch.rank, host.data(), std::chrono::duration<double>(patience).count(),
             launch.processes, launch.launcher);
  std::fflush(stderr);
  std::this_thread::sleep_for(kSpeakersTime);
  std::_Exit(1);
}

}  // namespace

StartWatch::StartWatch(const Launch& launch, std::chrono::milliseconds patience)
    : thread_([launch, patience](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any woken;
        std::unique_lock lock(mutex);
        const bool met =
            woken.wait_for(lock, stop, patience, [&] { return stop.stop_requested(); });
        if (!met) end_start(launch, patience);
      }) {}

}  // namespace tessera
