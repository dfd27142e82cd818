#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands.h"
#include "config/load_config.h"
#include "config/resolve.h"
#include "plan/explain.h"

namespace tessera {

void add_explain_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "explain", "Show the step that a configuration stands for: operations, FLOPs, memory");
  struct Arguments {
    std::string config;
    std::vector<std::string> overrides;
    int rank = 0;
    bool all = false;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  command->add_option("CONFIG", arguments->config, "The configuration, a TOML file")->required();
  command
      ->add_option("--set", arguments->overrides,
                   "Override one key: section.key=VALUE (repeatable)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--rank", arguments->rank, "Whose program is shown")->capture_default_str();
  command->add_flag("--all", arguments->all, "Every layer, not only the first");
  command->add_flag("--json", arguments->json, "JSON");
  command->callback([arguments] {
    if (arguments->rank != 0) {
      throw Error("--rank is {}; the run has 1 rank, number 0", arguments->rank);
    }
    const RunConfig config = resolve(load_config(arguments->config, arguments->overrides));
    const StepPlan plan = plan_step(config);
    fmt::print(
        "{}", arguments->json ? explain_json(config, plan) : explain(config, plan, arguments->all));
  });
}

}  // namespace tessera
