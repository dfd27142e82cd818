#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/text.h"
#include "cli/command_description.h"
#include "cli/commands.h"
#include "cli/file_options.h"
#include "config/sections.h"

namespace tessera {
namespace {

// The scripts for bash and zsh complete commands, options and values. They are written from the
// descriptions of the commands. For bash, one function finds the command in the words of the line,
// and looks its options and values up in `case` statements. For zsh, each command has a function
// that gives its options to _arguments and calls the function of the subcommand.

constexpr std::string_view kSetOption = "--set";

/// Calls `visit` for the program, with path "", and for each command, with a path such as
/// "checkpoint import".
void for_each_command(
    const CommandDescription& command, const std::string& path,
    const std::function<void(const CommandDescription&, const std::string& path)>& visit) {
  visit(command, path);
  for (const CommandDescription& subcommand : command.subcommands) {
    for_each_command(subcommand, path.empty() ? subcommand.name : path + " " + subcommand.name,
                     visit);
  }
}

/// Returns the words other than options that may follow a command: its subcommands, or the choices
/// of a positional argument.
std::string words_after(const CommandDescription& command) {
  std::vector<std::string> names;
  for (const CommandDescription& subcommand : command.subcommands) names.push_back(subcommand.name);
  for (const OptionDescription& option : command.options) {
    if (option.positional) names.insert(names.end(), option.choices.begin(), option.choices.end());
  }
  return join(names, " ");
}

std::string option_names(const CommandDescription& command) {
  std::vector<std::string> names;
  for (const OptionDescription& option : command.options) {
    if (!option.positional) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return join(names, " ");
}

/// Returns branches of bash's `case "$command $previous"`, which give the values of options.
std::string bash_value_branches(const CommandDescription& command, const std::string& path) {
  std::string branches;
  for (const OptionDescription& option : command.options) {
    if (option.positional || option.choices.empty()) continue;
    for (const std::string& name : option.names) {
      branches +=
          fmt::format("    \"{} {}\") words=\"{}\" ;;\n", path, name, join(option.choices, " "));
    }
  }
  return branches;
}

/// Escapes text for a specification of zsh's _arguments in single quotes. Colons and brackets have
/// a meaning there.
std::string zsh_specification(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    if (letter == ':' || letter == '[' || letter == ']') result += '\\';
    if (letter == '\'') result += "'\\'";
    result += letter == '\n' ? ' ' : letter;
  }
  return result;
}

/// Returns the name of the function that completes a command.
std::string zsh_function(const std::string& path) {
  std::string name = "_tessera";
  if (!path.empty()) name += "_" + path;
  std::ranges::replace(name, ' ', '_');
  return name;
}

/// Returns the zsh action that completes a value.
std::string zsh_action(const OptionDescription& option) {
  if (!option.choices.empty()) return fmt::format("({})", join(option.choices, " "));
  if (std::ranges::find(option.names, kSetOption) != option.names.end()) return "_tessera_keys";
  const bool is_file = option.value == kInputType || option.value == kOutputType ||
                       option.value == kOutputFolderType;
  return is_file ? "_files" : " ";
}

/// Returns the specifications of an option for _arguments, one line for each of its names.
std::string zsh_option(const OptionDescription& option) {
  if (option.positional) {
    return fmt::format("    '{}:{}:{}'", option.repeats ? "*" : "",
                       zsh_specification(option.names.front()), zsh_action(option));
  }
  std::string value;
  if (option.takes_value) {
    value = fmt::format(":{}:{}", zsh_specification(option.value), zsh_action(option));
  }
  // An option that may be repeated is still offered after its first use.
  const bool repeatable = option.repeats || option.names.front() == kSetOption;
  const std::string excluded = repeatable ? "*" : fmt::format("({})", join(option.names, " "));
  std::vector<std::string> lines;
  for (const std::string& name : option.names) {
    lines.push_back(fmt::format("    '{}{}[{}]{}'", excluded, name,
                                zsh_specification(option.description), value));
  }
  return join(lines, " \\\n");
}

/// Returns the body of the function for a command with subcommands. It completes the subcommand's
/// name and leaves what follows to the subcommand's function.
std::string zsh_subcommand_body(const CommandDescription& command, const std::string& path,
                                const std::string& options) {
  std::string names, branches;
  for (const CommandDescription& subcommand : command.subcommands) {
    const std::string subcommand_path =
        path.empty() ? subcommand.name : path + " " + subcommand.name;
    names +=
        fmt::format("    '{}:{}'\n", subcommand.name, zsh_specification(subcommand.description));
    branches += fmt::format("      {}) {} ;;\n", subcommand.name, zsh_function(subcommand_path));
  }
  return fmt::format(R"(  local -a commands=(
{}  )
  _arguments -C \
{}    ':command:->command' \
    '*::argument:->argument'
  case $state in
    command) _describe -t commands command commands ;;
    argument) case $words[1] in
{}    esac ;;
  esac
)",
                     names, options, branches);
}

/// Returns the script for bash. `keys` are the words offered after --set: "train.steps". Where
/// nothing else is known, it offers file names.
std::string bash_completion(const CommandDescription& program,
                            const std::vector<std::string>& keys) {
  std::string paths, values, offers;
  for_each_command(program, "", [&](const CommandDescription& command, const std::string& path) {
    for (const CommandDescription& subcommand : command.subcommands) {
      paths += fmt::format("      \"{} {}\") command=\"${{command:+$command }}$word\" ;;\n", path,
                           subcommand.name);
    }
    values += bash_value_branches(command, path);
    offers += fmt::format("    \"{}\") options=\"{}\" commands=\"{}\" ;;\n", path,
                          option_names(command), words_after(command));
  });
  return fmt::format(R"(# Completion of tessera for bash. Made by `tessera completion bash`.
_tessera() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD - 1]}}"
  local command="" word words="" options="" commands="" i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word="${{COMP_WORDS[i]}}"
    case "$command $word" in
{}    esac
  done
  COMPREPLY=()
  if [[ "$previous" == {} ]]; then
    COMPREPLY=($(compgen -S = -W "{}" -- "$current"))
    compopt -o nospace 2>/dev/null
    return
  fi
  case "$command $previous" in
{}  esac
  if [[ -n "$words" ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    return
  fi
  case "$command" in
{}  esac
  if [[ "$current" == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  elif [[ -n "$commands" ]]; then
    COMPREPLY=($(compgen -W "$commands" -- "$current"))
  fi
}}
complete -o bashdefault -o default -F _tessera tessera
)",
                     paths, kSetOption, join(keys, " "), values, offers);
}

/// Returns the script for zsh. `keys` are those of bash_completion().
std::string zsh_completion(const CommandDescription& program,
                           const std::vector<std::string>& keys) {
  std::string script =
      "#compdef tessera\n# Completion of tessera for zsh. Made by `tessera completion zsh`.\n\n";
  script += "_tessera_keys() {\n  compadd -S = --";
  for (const std::string& key : keys) script += " " + key;
  script += "\n}\n\n";
  for_each_command(program, "", [&](const CommandDescription& command, const std::string& path) {
    std::string options;
    for (const OptionDescription& option : command.options) {
      options += zsh_option(option) + " \\\n";
    }
    script += zsh_function(path) + "() {\n  local state line\n  typeset -A opt_args\n";
    if (command.subcommands.empty()) {
      script += "  _arguments \\\n" + options + "    && return\n";
    } else {
      script += zsh_subcommand_body(command, path, options);
    }
    script += "}\n\n";
  });
  return script + "_tessera \"$@\"\n";
}

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

void add_completion_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("completion", "Print a script that completes commands in a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "The shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  command->callback([&app, shell] {
    const auto script = *shell == "bash" ? bash_completion : zsh_completion;
    fmt::print("{}", script(describe_command(app), settable_keys()));
  });
}

}  // namespace tessera
