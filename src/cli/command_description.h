#pragma once

#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace tessera {

/// One option or positional argument of a command, as its help text has it.
struct OptionDescription {
  std::vector<std::string> names;  ///< "-h", "--help"; of a positional argument its one name
  bool positional = false;
  bool takes_value = false;  ///< a positional argument always does
  bool required = false;
  bool repeats = false;       ///< takes any number of values
  std::string value;          ///< what the value is: "TEXT", "INT"; empty for a flag
  std::string default_value;  ///< empty where there is none
  std::string description;
  std::vector<std::string> choices;  ///< the only values allowed; empty where others are
};

/// A command with its options and subcommands: what the manual page and the shells' completions are
/// made of.
struct CommandDescription {
  std::string name;
  std::string description;
  std::string footer;  ///< stands below the options; may be empty
  std::vector<OptionDescription> options;
  std::vector<CommandDescription> subcommands;
};

/// Reads a command and all its subcommands off the parser.
CommandDescription describe_command(const CLI::App& app);

}  // namespace tessera
