#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/config_arguments.h"
#include "config/resolve.h"
#include "ops/host_target.h"
#include "plan/explain.h"

namespace tessera {

void add_explain_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "explain", "Show the step that a configuration stands for: operations, FLOPs, memory");
  struct Arguments {
    ConfigArguments config;
    int rank = 0;
    bool all = false;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  add_config_arguments(*command, arguments->config);
  command->add_option("--rank", arguments->rank, "Whose program is shown")->capture_default_str();
  command->add_flag("--all", arguments->all, "Every layer, not only the first");
  command->add_flag("--json", arguments->json, "JSON");
  command->callback([arguments] {
    if (arguments->rank != 0) {
      throw Error("--rank is {}; the run has 1 rank, number 0", arguments->rank);
    }
    const RunConfig config = resolve(arguments->config.load());
    const StepPlan plan = plan_step(config, host_target(static_cast<int>(config.run.threads)));
    fmt::print(
        "{}", arguments->json ? explain_json(config, plan) : explain(config, plan, arguments->all));
  });
}

}  // namespace tessera
