#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/text.h"
#include "cli/command_description.h"
#include "cli/commands.h"

namespace tessera {
namespace {

/// Returns the text with escapes, so that troff shows it unchanged and takes no line for a request.
std::string troff(std::string_view text) {
  std::string result;
  bool line_start = true;
  for (const char letter : text) {
    if (line_start && (letter == '.' || letter == '\'')) result += "\\&";
    line_start = letter == '\n';
    if (letter == '\\') {
      result += "\\e";
    } else if (letter == '-') {
      result += "\\-";  // a plain "-" becomes a hyphen, which cannot be pasted into a shell
    } else {
      result += letter;
    }
  }
  return result;
}

/// Returns the entry of an option: the names, the kind of the value and the description.
std::string option_entry(const OptionDescription& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names)
    names.push_back(fmt::format("\\fB{}\\fR", troff(name)));
  std::string entry = ".TP\n" + join(names, ", ");
  if (option.takes_value && !option.positional)
    entry += fmt::format(" \\fI{}\\fR", troff(option.value));
  if (option.repeats) entry += " ...";
  entry += "\n" + troff(option.description);
  if (!option.choices.empty()) {
    entry += fmt::format(" (one of {})", troff(join(option.choices, ", ")));
  }
  if (!option.default_value.empty()) {
    entry += fmt::format(" (default: {})", troff(option.default_value));
  }
  if (option.required) entry += " (required)";
  return entry + "\n";
}

std::string synopsis(const CommandDescription& command, const std::string& path) {
  std::string line = fmt::format("\\fB{}\\fR [\\fIoptions\\fR]", troff(path));
  for (const OptionDescription& option : command.options) {
    if (!option.positional) continue;
    line += fmt::format(" \\fI{}\\fR{}", troff(option.names.front()), option.repeats ? "..." : "");
  }
  return line;
}

/// Adds the entry of a command, or the entries of its subcommands if it has any.
void add_commands(const CommandDescription& command, const std::string& path, std::string& page) {
  if (command.subcommands.empty()) {
    page += fmt::format(".SS {}\n{}.\n.PP\n{}\n", troff(path), troff(command.description),
                        synopsis(command, path));
    for (const OptionDescription& option : command.options) page += option_entry(option);
    if (!command.footer.empty() && command.footer != "\n") {
      page += ".PP\n.nf\n" + troff(command.footer) + "\n.fi\n";
    }
  }
  for (const CommandDescription& subcommand : command.subcommands) {
    add_commands(subcommand, path + " " + subcommand.name, page);
  }
}

/// Returns the manual page (section 1) of the program and its commands, in the macros of man(7).
std::string manual_page(const CommandDescription& program) {
  std::string page = ".TH TESSERA 1 \"\" \"tessera " TESSERA_VERSION
                     "\" \"User Commands\"\n"
                     ".SH NAME\ntessera \\- pretrain large language models\n"
                     ".SH SYNOPSIS\n\\fBtessera\\fR \\fIcommand\\fR [\\fIoptions\\fR]\n"
                     ".SH DESCRIPTION\n";
  page += troff(program.description) + ".\n";
  page += ".SH COMMANDS\n";
  for (const CommandDescription& command : program.subcommands) {
    add_commands(command, "tessera " + command.name, page);
  }
  page +=
      ".SH EXIT STATUS\n0 on success, 1 on an error that the message says how to mend, 2 on a "
      "command line that cannot be read and on a fault of the program itself. A run that a signal "
      "has ended after saving exits with 0.\n";
  return page;
}

}  // namespace

void add_manual_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("manual", "Print the manual page, for `man -l -`");
  command->callback([&app] { fmt::print("{}", manual_page(describe_command(app))); });
}

}  // namespace tessera
