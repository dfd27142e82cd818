// main() prepares the process, adds the commands to the parser of the command line, and runs the
// command. run_and_report() turns what the command throws into a message and an exit status.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "base/denormals.h"
#include "base/error.h"
#include "base/signal_thread.h"
#include "base/standard_streams.h"
#include "cli/commands.h"
#include "cli/file_options.h"
#include "cli/parse_arguments.h"
#include "cli/processor_features.h"
#include "cli/several_processes.h"
#include "cli/standard_output.h"
#include "cli/user_error.h"

namespace tessera {
namespace {

/// Makes OpenMP's waiting threads sleep. They spin by default, which costs far more than waking
/// them on a machine shared with others. Here they spin for some tens of microseconds, the time
/// from one product to the next, and then sleep. OpenMP reads its settings before main() runs, so
/// the program restarts itself with them set. Settings of the user stay.
void let_waiting_threads_sleep(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::setenv("GOMP_SPINCOUNT", "2000", 0);  // iterations
  // The program's own path is tried first, because lists of processes then show the program's name.
  // The link serves if the program is no longer at that path. If both fail, this process continues
  // unchanged.
  std::error_code error;
  ::execv(std::filesystem::read_symlink("/proc/self/exe", error).c_str(), argv);
  ::execv("/proc/self/exe", argv);
}

constexpr int kUsageStatus = 2;  // the status of a wrong command line, as of most programs

/// Returns the message about a command line that cannot be read: the reason, and where --help is.
std::string usage_message(const CLI::App* app, const CLI::Error& error) {
  const std::string command = command_name(*app);
  return fmt::format("tessera: error: {}; see tessera {}{}--help\n", error.what(), command,
                     command.empty() ? "" : " ");
}

/// Parses the command line and runs the command that it names. Returns the exit status.
int run_command(CLI::App& app, std::span<const char* const> arguments) {
  try {
    parse_arguments(app, arguments);
  } catch (const CLI::ParseError& error) {
    const bool usage = error.get_exit_code() != static_cast<int>(CLI::ExitCodes::Success);
    app.exit(error);
    return usage ? kUsageStatus : 0;
  } catch (const CommandStatus& status) {
    return status.value;
  }
  return 0;
}

/// Runs the command as run_command() does, and reports its errors. Also reports output that the
/// system did not accept: printed text may stay in a buffer until the end.
int run_and_report(CLI::App& app, std::span<const char* const> arguments) {
  try {
    const SignalThread signals;  // before any other thread is started
    const int status = run_command(app, arguments);
    flush_output();
    return status;
  } catch (const OutputError& error) {
    return report_output_error(error);
  } catch (const Error& error) {
    say(fmt::format("tessera: error: {}", error.what()));
    return 1;
  } catch (const std::exception& error) {
    // The printing library throws std::system_error if the stream refuses.
    const auto* system_error = dynamic_cast<const std::system_error*>(&error);
    if (system_error != nullptr && std::ferror(stdout) != 0) {
      return report_output_error({system_error->code().value()});
    }
    if (const auto message = user_error(error)) {
      say(fmt::format("tessera: error: {}", *message));
      return 1;
    }
    say(fmt::format("tessera: internal error: {}", error.what()));
    return 2;
  }
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  if (const char* missing = missing_processor_feature()) {
    std::fputs("tessera: error: this program was compiled for processors with ", stderr);
    std::fputs(missing, stderr);
    std::fputs(", which this one lacks; build it here, or take a build for older processors\n",
               stderr);
    return 1;
  }
  open_missing_streams();
  let_waiting_threads_sleep(argv);
  flush_denormals();  // before any thread is started
  // A write beyond the user's limit of file size then fails with an error that names the file. The
  // signal would end the program and leave half of the file on the disk.
  std::signal(SIGXFSZ, SIG_IGN);
  CLI::App app("tessera: pretrain large language models, mixtures of experts first of all");
  app.set_version_flag("--version", "tessera " TESSERA_VERSION);
  app.require_subcommand(1);
  app.failure_message(usage_message);
  add_prepare_command(app);
  add_train_command(app);
  add_eval_command(app);
  add_generate_command(app);
  add_explain_command(app);
  add_verify_command(app);
  add_checkpoint_command(app);
  add_bench_command(app);
  add_plot_command(app);
  add_trace_command(app);
  add_device_command(app);
  add_completion_command(app);
  add_manual_command(app);
  app.parse_complete_callback([&app] {
    refuse_several_processes(app);
    refuse_same_files(app);
  });
  return run_and_report(app, {argv, static_cast<size_t>(argc)});
}
