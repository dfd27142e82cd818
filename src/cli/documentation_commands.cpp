#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/command_description.h"
#include "cli/commands.h"
#include "cli/manual_page.h"
#include "cli/shell_completion.h"
#include "config/sections.h"

namespace tessera {
namespace {

/// Returns the keys that --set is completed with. Leaves out lists of tables, because their keys
/// contain a table's name.
std::vector<std::string> settable_keys() {
  std::vector<std::string> names;
  for (const ConfigSection& section : all_sections()) {
    for (const Key& key : section.keys) names.push_back(section.name + "." + key.name);
  }
  return names;
}

}  // namespace

void add_documentation_commands(CLI::App& app) {
  CLI::App* completion =
      app.add_subcommand("completion", "Print a script that completes commands in a shell");
  auto shell = std::make_shared<std::string>();
  completion->add_option("SHELL", *shell, "The shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  completion->callback([&app, shell] {
    const CommandDescription program = describe_command(app);
    const std::vector<std::string> keys = settable_keys();
    fmt::print("{}",
               *shell == "bash" ? bash_completion(program, keys) : zsh_completion(program, keys));
  });
  CLI::App* manual = app.add_subcommand("manual", "Print the manual page, for `man -l -`");
  manual->callback(
      [&app] { fmt::print("{}", manual_page(describe_command(app), TESSERA_VERSION)); });
}

}  // namespace tessera
