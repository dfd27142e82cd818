#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "base/denormals.h"
#include "base/error.h"
#include "cli/commands.h"

namespace tessera {
namespace {

/// OpenMP's waiting threads spin, which on a machine shared with others costs far more than waking
/// them does. Here they spin for some tens of microseconds, the time from one product to the next,
/// and then sleep. OpenMP reads its settings before main() runs, so the program starts itself once
/// more with them set; what the user has set stays.
void let_waiting_threads_sleep(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::setenv("GOMP_SPINCOUNT", "2000", 0);
  // By its own path, so that lists of processes show the program's name; by the link where another
  // program has taken that place. Where neither can be, this process goes on as it is.
  std::error_code error;
  ::execv(std::filesystem::read_symlink("/proc/self/exe", error).c_str(), argv);
  ::execv("/proc/self/exe", argv);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  let_waiting_threads_sleep(argv);
  flush_denormals();  // before any thread is started
  // A file above the user's limit is an error of its write, which says which file; the signal would
  // end the program with half of it on the disk.
  std::signal(SIGXFSZ, SIG_IGN);
  CLI::App app("tessera: pretrain large language models, mixtures of experts first of all");
  app.set_version_flag("--version", "tessera " TESSERA_VERSION);
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::help);
  add_prepare_command(app);
  add_train_command(app);
  add_eval_command(app);
  add_generate_command(app);
  add_explain_command(app);
  add_checkpoint_command(app);
  add_bench_command(app);
  add_plot_command(app);
  add_trace_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const CommandStatus& status) {
    return status.value;
  } catch (const Error& error) {
    fmt::print(stderr, "tessera: error: {}\n", error.what());
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "tessera: internal error: {}\n", error.what());
    return 2;
  }
  return 0;
}
