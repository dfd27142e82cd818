#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/threads.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_manifest.h"
#include "checkpoint/inspect.h"
#include "checkpoint/verify_checkpoint.h"
#include "cli/commands.h"
#include "cli/hugging_face_commands.h"

namespace tessera {
namespace {

struct Arguments {
  std::string path;
  bool json = false;
};

std::shared_ptr<Arguments> add_arguments(CLI::App& command) {
  auto arguments = std::make_shared<Arguments>();
  command.add_option("PATH", arguments->path, "A run's folder, its checkpoints or one checkpoint")
      ->required();
  command.add_flag("--json", arguments->json, "One JSON object");
  return arguments;
}

/// The checkpoint that a path names. A broken one that is named itself is what verify is for.
fs::path checkpoint_to_verify(const fs::path& path) {
  const bool itself =
      fs::exists(path / kCheckpointManifestName) || path.filename().string().starts_with("step-");
  return itself ? path : find_checkpoint(path);
}

}  // namespace

void add_checkpoint_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("checkpoint", "Look at checkpoints, import and export them");
  command->require_subcommand(1);

  CLI::App* inspect = command->add_subcommand("inspect", "What a checkpoint holds, as a table");
  auto inspected = add_arguments(*inspect);
  inspect->callback([inspected] {
    const fs::path path = find_checkpoint(inspected->path);
    fmt::print("{}", inspected->json ? inspect_checkpoint_json(path) : inspect_checkpoint(path));
  });

  CLI::App* verify =
      command->add_subcommand("verify", "Read it all and check every hash; status 1 when damaged");
  auto verified = add_arguments(*verify);
  verify->callback([verified] {
    const VerifyReport report =
        verify_checkpoint(checkpoint_to_verify(verified->path), threads_or_all(0));
    fmt::print("{}", verified->json ? report.json() : report.text());
    if (!report.ok()) throw CommandStatus{1};
  });

  add_import_command(*command);
  add_export_command(*command);
}

}  // namespace tessera
