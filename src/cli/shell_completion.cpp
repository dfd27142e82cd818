#include "cli/shell_completion.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"

namespace tessera {
namespace {

constexpr std::string_view kSetOption = "--set";

/// Calls `visit` for the program, with path "", and for each command, with a path such as
/// "checkpoint import".
void for_each_command(
    const CommandDescription& command, const std::string& path,
    const std::function<void(const CommandDescription&, const std::string& path)>& visit) {
  visit(command, path);
  for (const CommandDescription& part : command.subcommands) {
    for_each_command(part, path.empty() ? part.name : path + " " + part.name, visit);
  }
}

/// Returns the words other than options that may follow: subcommands, or a positional argument's
/// choices.
std::string words_of(const CommandDescription& command) {
  std::vector<std::string> names;
  for (const CommandDescription& part : command.subcommands) names.push_back(part.name);
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

/// Returns the branches of bash's `case "$command $previous"`: the known values of options.
std::string bash_values(const CommandDescription& command, const std::string& path) {
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

/// Escapes text for single quotes in zsh.
std::string in_single_quotes(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    if (letter == '\'') {
      result += "'\\''";
    } else {
      result += letter;
    }
  }
  return result;
}

/// Escapes text for a specification of zsh's _arguments, where colons and brackets have a meaning.
std::string specification_text(std::string_view text) {
  std::string result;
  for (const char letter : in_single_quotes(text)) {
    if (letter == ':' || letter == '[' || letter == ']') result += '\\';
    result += letter == '\n' ? ' ' : letter;
  }
  return result;
}

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
  return option.value == "TEXT" ? "_files" : " ";
}

std::string zsh_option(const OptionDescription& option) {
  if (option.positional) {
    return fmt::format("    '{}:{}:{}'", option.repeats ? "*" : "",
                       specification_text(option.names.front()), zsh_action(option));
  }
  std::string value;
  if (option.takes_value) {
    value = fmt::format(":{}:{}", specification_text(option.value), zsh_action(option));
  }
  // An option that may be repeated is still offered after its first use.
  const bool again = option.repeats || option.names.front() == kSetOption;
  const std::string excluded = again ? "*" : fmt::format("({})", join(option.names, " "));
  std::vector<std::string> lines;
  for (const std::string& name : option.names) {
    lines.push_back(fmt::format("    '{}{}[{}]{}'", excluded, name,
                                specification_text(option.description), value));
  }
  return join(lines, " \\\n");
}

/// Returns the body for a command with subcommands. It completes the subcommand's name and leaves
/// the rest to that subcommand's function.
std::string zsh_choice(const CommandDescription& command, const std::string& path,
                       const std::string& options) {
  std::string names, branches;
  for (const CommandDescription& part : command.subcommands) {
    const std::string below = path.empty() ? part.name : path + " " + part.name;
    names += fmt::format("    '{}:{}'\n", part.name, specification_text(part.description));
    branches += fmt::format("      {}) {} ;;\n", part.name, zsh_function(below));
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

}  // namespace

std::string bash_completion(const CommandDescription& program, std::span<const std::string> keys) {
  std::string paths, values, offers;
  for_each_command(program, "", [&](const CommandDescription& command, const std::string& path) {
    for (const CommandDescription& part : command.subcommands) {
      paths += fmt::format("      \"{} {}\") command=\"${{command:+$command }}$word\" ;;\n", path,
                           part.name);
    }
    values += bash_values(command, path);
    offers += fmt::format("    \"{}\") options=\"{}\" commands=\"{}\" ;;\n", path,
                          option_names(command), words_of(command));
  });
  const std::vector<std::string> all_keys(keys.begin(), keys.end());
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
                     paths, kSetOption, join(all_keys, " "), values, offers);
}

std::string zsh_completion(const CommandDescription& program, std::span<const std::string> keys) {
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
      script += zsh_choice(command, path, options);
    }
    script += "}\n\n";
  });
  return script + "_tessera \"$@\"\n";
}

}  // namespace tessera
