#pragma once

#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace tessera {

/// One option or positional argument of a command, as in the help text.
struct OptionDescription {
  std::vector<std::string> names;  ///< "-h", "--help"; the one name of a positional argument
  bool positional = false;
  bool takes_value = false;  ///< a positional argument always does
  bool required = false;
  bool repeats = false;       ///< takes any number of values
  std::string value;          ///< the kind of the value: "TEXT", "INT"; empty for a flag
  std::string default_value;  ///< empty if there is none
  std::string description;
  std::vector<std::string> choices;  ///< the only values allowed; empty if any value is
};

/// A command with its options and subcommands. The manual page and the shells' completions are made
/// from this description.
struct CommandDescription {
  std::string name;
  std::string description;
  std::string footer;  ///< text below the options; may be empty
  std::vector<OptionDescription> options;
  std::vector<CommandDescription> subcommands;
};

/// Returns the description of a command of the parser and all its subcommands.
CommandDescription describe_command(const CLI::App& app);

}  // namespace tessera
