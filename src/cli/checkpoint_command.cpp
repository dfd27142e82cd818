#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/threads.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/inspect.h"
#include "checkpoint/verify_checkpoint.h"
#include "cli/commands.h"
#include "cli/hugging_face_commands.h"

namespace tessera {
namespace {

struct CheckpointArguments {
  std::string path;
  bool json = false;
};

std::shared_ptr<CheckpointArguments> add_arguments(CLI::App& command) {
  auto arguments = std::make_shared<CheckpointArguments>();
  command.add_option("PATH", arguments->path, "A run's folder, its checkpoints or one checkpoint")
      ->required();
  command.add_flag("--json", arguments->json, "One JSON object");
  return arguments;
}

}  // namespace

void add_checkpoint_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("checkpoint", "Look at checkpoints, import and export them");
  command->require_subcommand(1);

  CLI::App* inspect = command->add_subcommand("inspect", "What a checkpoint holds, as a table");
  auto inspected = add_arguments(*inspect);
  inspect->callback([inspected] {
    const std::string text = read_chosen(inspected->path, Logger(), [&](const fs::path& path) {
      return inspected->json ? inspect_checkpoint_json(path) : inspect_checkpoint(path);
    });
    fmt::print("{}", text);
  });

  CLI::App* verifying = command->add_subcommand(
      "verify", "Read it all and check every hash; of a run the newest; status 1 when damaged");
  auto verified = add_arguments(*verifying);
  verifying->callback([verified] {
    const VerifyReport report = verify_named(verified->path, threads_or_all(0));
    fmt::print("{}", verified->json ? report.json() : report.text());
    if (!report.ok()) throw CommandStatus{1};
  });

  add_import_command(*command);
  add_export_command(*command);
}

}  // namespace tessera
