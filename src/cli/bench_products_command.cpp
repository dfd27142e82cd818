#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/bench_commands.h"
#include "cli/config_arguments.h"
#include "cli/file_options.h"
#include "cli/options.h"
#include "config/resolve.h"
#include "hardware/tuned_products_file.h"
#include "train/bench_step.h"

namespace tessera {

void add_bench_products(CLI::App& bench) {
  struct Arguments {
    ConfigArguments config;
    TuningBudget budget;
    std::string output = "products.json";
  };
  CLI::App* command = bench.add_subcommand(
      "products",
      "The fastest algorithm of each matrix product in a configuration's training step, and the "
      "faster library of each product of experts, on the device cuda, as a table that `train` "
      "reads as run.tuned_products");
  auto arguments = std::make_shared<Arguments>();
  add_config_arguments(*command, arguments->config);
  add_output(*command, "--output", arguments->output, "The file that is written")
      ->capture_default_str();
  add_number(*command, "--candidates", arguments->budget.candidates, 1, 1000,
             "The largest number of algorithms that are measured for a product");
  add_number(*command, "--rounds", arguments->budget.rounds, 1, 1000,
             "How often each algorithm is measured; the median counts");
  command->callback([arguments] {
    require_writable(arguments->output);
    const InterruptGuard guard;
    Progress progress;
    const TunedTable table = tune_step_products(
        resolve(arguments->config.load()), arguments->budget,
        [&](const std::string& sizes, size_t done, size_t all) {
          progress.show(fmt::format("product {} of {}: {}", done + 1, all, sizes), done + 1 == all);
        });
    write_file(arguments->output, tuned_products_json(table));
    fmt::print("{}\n{} holds it; train with --set 'run.tuned_products=\"{}\"'\n",
               tuned_products_text(table), arguments->output, arguments->output);
  });
}

}  // namespace tessera
