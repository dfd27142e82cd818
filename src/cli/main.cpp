#include <thread>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands.h"

namespace tessera {

int machine_threads() {
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
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
