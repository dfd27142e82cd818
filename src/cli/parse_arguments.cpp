#include "cli/parse_arguments.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/strict_json.h"
#include "base/text.h"

namespace tessera {
namespace {

bool takes_number(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT");
}

/// Returns the problem with a number's text; empty if the library finds every problem itself.
std::string number_problem(std::string text) {
  if (text.empty()) return "found nothing; expected a number";
  std::ranges::transform(text, text.begin(),
                         [](unsigned char letter) { return std::tolower(letter); });
  if (text.find("nan") == std::string::npos && text.find("inf") == std::string::npos) return "";
  return fmt::format("found {}; expected a finite number", text);
}

/// Makes every option that takes a number, in all commands, refuse what number_problem() finds.
void require_finite_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (takes_number(*option)) option->check(CLI::Validator(number_problem, ""));
  }
  for (CLI::App* command : app.get_subcommands({})) require_finite_numbers(*command);
}

/// A mark in an argument that the library would change: behind a closing bracket at the end,
/// because the library would take the argument for a list, and in place of an empty entry between
/// commas, because the library would leave the entry out. The arguments of a process cannot contain
/// this character.
constexpr char kMark = '\0';

std::string marked(std::string_view argument) {
  std::string result;
  // An option's value may follow its name after an equals sign.
  const size_t value = argument.starts_with("--") ? argument.find('=') + 1 : 0;
  for (size_t i = 0; i < argument.size(); ++i) {
    if (argument[i] == ',' && (i == value || argument[i - 1] == ',')) result += kMark;
    result += argument[i];
  }
  if (argument.ends_with(']') || argument.ends_with(',')) result += kMark;
  return result;
}

std::string as_typed(std::string argument) {
  std::erase(argument, kMark);
  return argument;
}

/// Makes every option, of all commands, remove the mark before it checks or converts a value.
void remove_marks(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) option->transform(as_typed);
  for (CLI::App* command : app.get_subcommands({})) remove_marks(*command);
}

/// Returns the arguments that neither an option nor a command took, as they were typed.
std::vector<std::string> unexpected_arguments(const CLI::App& app) {
  std::vector<std::string> unexpected = app.remaining(/*recurse=*/true);
  std::ranges::transform(unexpected, unexpected.begin(), as_typed);
  return unexpected;
}

/// Throws an error that names the command if the arguments ask for one that does not exist.
void refuse_unknown_command(const CLI::App& app) {
  const CLI::App& innermost = chosen_command(app);
  const std::vector<std::string> unexpected = unexpected_arguments(app);
  if (innermost.get_require_subcommand_min() == 0 || unexpected.empty()) return;
  std::vector<std::string> names;
  for (const CLI::App* command : innermost.get_subcommands({})) {
    names.push_back(command->get_name());
  }
  const std::string& first = unexpected.front();
  const std::string known = join(names, ", "), nearest = nearest_name(first, names);
  const auto message = [&] {
    if (first.starts_with('-')) {
      return fmt::format("found {}, expected a command first: {}", in_quotes(first), known);
    }
    return fmt::format(
        "there is no command {}; {}", in_quotes(first),
        nearest.empty() ? "there are " + known : fmt::format("did you mean '{}'?", nearest));
  };
  throw CLI::RequiredError(message(), CLI::ExitCodes::RequiredError);
}

}  // namespace

const CLI::App& chosen_command(const CLI::App& app) {
  const CLI::App* innermost = &app;
  while (!innermost->get_subcommands().empty()) innermost = innermost->get_subcommands().back();
  return *innermost;
}

void parse_arguments(CLI::App& app, std::span<const char* const> arguments) {
  require_finite_numbers(app);
  remove_marks(app);
  std::vector<std::string> reversed;  // the order that the library expects
  for (const char* argument : arguments.subspan(1)) reversed.push_back(marked(argument));
  std::ranges::reverse(reversed);
  app.name(arguments[0]);
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ExtrasError&) {
    std::vector<std::string> unexpected = unexpected_arguments(app);
    std::ranges::reverse(unexpected);  // the library lists them from the end
    throw CLI::ExtrasError(app.get_name(), unexpected);
  } catch (const CLI::RequiredError&) {
    refuse_unknown_command(app);
    throw;
  }
}

}  // namespace tessera
