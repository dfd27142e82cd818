#include "cli/several_processes.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/standard_output.h"
#include "cli/user_error.h"
#include "comm/launch.h"

namespace tessera {
namespace {

/// The longest time that a rank with an error waits for the others to end before it aborts them.
constexpr std::chrono::milliseconds kLongestWait{10'000};

/// The outcome of a process's work.
struct WorkResult {
  std::string error;  // the message; empty: none
  int status = 0;     // the command's exit status
};

/// Runs the work, and returns the error that it threw or the status of its CommandStatus.
WorkResult result_of(const std::function<void()>& work) {
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

/// The commands that run as several processes.
constexpr std::array<std::string_view, 5> kProcessCommands{"train", "eval", "verify",
                                                           "bench collectives", "bench schedule"};

/// The time that processes other than the first wait before they throw the error of
/// refuse_several_processes(). The launcher ends all processes when one ends with an error, so
/// usually only the first process prints the error. The others print it if the first does not run.
constexpr std::chrono::seconds kHeadStart{1};

}  // namespace

std::string command_name(const CLI::App& app) {
  std::string name;
  for (const CLI::App* command = &app; !command->get_subcommands().empty();) {
    command = command->get_subcommands().back();
    name += (name.empty() ? "" : " ") + command->get_name();
  }
  return name;
}

void run_as_one_process(Processes* processes, const std::function<void()>& work) {
  if (processes == nullptr) return work();
  const auto [error, status] = result_of(work);
  // A rank without an error waits for the full timeout, as in any collective: the first rank may
  // still be removing old checkpoints.
  const auto longest_wait =
      error.empty() ? processes->timeout() : std::min(kLongestWait, processes->timeout());
  // Waits for the other ranks. The report says whether this rank is to print the error.
  const Processes::Report report = processes->report_end(error, longest_wait);
  if (report == Processes::Report::for_all) {
    say(fmt::format("tessera: error: {}", error));
  } else if (report == Processes::Report::own) {
    say(fmt::format("tessera: error: {}: {}", processes->text(processes->rank()), error));
  }
  if (!processes->all_ended()) processes->abort(1);
  if (status != 0) throw CommandStatus{status};
}

void refuse_thread_ranks(const Processes* processes, int ranks) {
  if (processes == nullptr || ranks < 2) return;
  throw Error("--ranks ({}) is for the threads of one process, and this is one of {}; leave it out",
              ranks, processes->ranks());
}

void refuse_several_processes(const CLI::App& app) {
  const std::string command = command_name(app);
  if (std::ranges::find(kProcessCommands, command) != kProcessCommands.end()) return;
  const std::optional<Launch> launch = find_launch();
  if (!launch) return;
  if (launch->rank > 0) std::this_thread::sleep_for(kHeadStart);
  throw Error(
      "{} started {} processes, and `tessera {}` runs in one: each would do all of it. Start it "
      "without {}. Those that run over processes are train, eval, verify, bench collectives and "
      "bench schedule",
      launch->launcher, launch->processes, command, launch->launcher);
}

}  // namespace tessera
