#include "cli/as_one_of.h"

#include <algorithm>
#include <chrono>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/standard_output.h"
#include "cli/user_error.h"

namespace tessera {
namespace {

/// The longest time that a rank with an error waits for the other ranks to end before it aborts
/// them.
constexpr std::chrono::milliseconds kPatience{10'000};

/// The result of a process's work.
struct Ending {
  std::string error;  // the message; empty: none
  int status = 0;     // the command's exit status
};

/// Runs the work, and returns the error that it threw or the status of its CommandStatus.
Ending ending_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const CommandStatus& status) {
    return {.status = status.value};
  } catch (const Error& error) {
    return {error.what(), 1};
  } catch (const std::exception& error) {
    return {user_error(error).value_or(fmt::format("internal error: {}", error.what())), 1};
  }
  return {};
}

}  // namespace

void run_as_one_of(Processes& processes, const std::function<void()>& work) {
  const auto [error, status] = ending_of(work);
  // A rank without an error waits for the full timeout, as in any collective: the first rank may
  // still be removing old checkpoints.
  const auto patience =
      error.empty() ? processes.timeout() : std::min(kPatience, processes.timeout());
  // Waits for the other ranks. The report says whether this rank is to print the error.
  const Processes::Report report = processes.report_end(error, patience);
  if (report == Processes::Report::for_all) {
    say(fmt::format("tessera: error: {}", error));
  } else if (report == Processes::Report::own) {
    say(fmt::format("tessera: error: {}: {}", processes.text(processes.rank()), error));
  }
  if (!processes.all_ended()) processes.abort(1);
  if (status != 0) throw CommandStatus{status};
}

Error ranks_beside_processes(int ranks, const Processes& processes) {
  return Error(
      "--ranks ({}) is for the threads of one process, and this is one of {}; leave it out", ranks,
      processes.ranks());
}

}  // namespace tessera
