#include "cli/parse_arguments.h"

#include <algorithm>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/strict_json.h"
#include "base/text.h"

namespace tessera {
namespace {

/// The mark that follows an argument that ends with a bracket, so that the library finds no list in
/// it. The system's arguments cannot contain this character.
constexpr char kMark = '\0';

std::string marked(std::string argument) {
  if (argument.ends_with(']')) argument += kMark;
  return argument;
}

std::string as_typed(std::string argument) {
  if (argument.ends_with(kMark)) argument.pop_back();
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
  const CLI::App* reached = &app;
  while (!reached->get_subcommands().empty()) reached = reached->get_subcommands().back();
  const std::vector<std::string> unexpected = unexpected_arguments(app);
  if (reached->get_require_subcommand_min() == 0 || unexpected.empty()) return;
  std::vector<std::string> names;
  for (const CLI::App* command : reached->get_subcommands({})) {
    names.push_back(command->get_name());
  }
  const std::string& first = unexpected.front();
  const std::string all = join(names, ", "), nearest = nearest_name(first, names);
  const auto message = [&] {
    if (first.starts_with('-')) {
      return fmt::format("found {}, expected a command first: {}", in_quotes(first), all);
    }
    return fmt::format(
        "there is no command {}; {}", in_quotes(first),
        nearest.empty() ? "there are " + all : fmt::format("did you mean '{}'?", nearest));
  };
  throw CLI::RequiredError(message(), CLI::ExitCodes::RequiredError);
}

}  // namespace

void parse_arguments(CLI::App& app, std::span<const char* const> arguments) {
  remove_marks(app);
  std::vector<std::string> last_first;  // the order that the library wants
  for (const char* argument : arguments.subspan(1)) last_first.push_back(marked(argument));
  std::ranges::reverse(last_first);
  app.name(arguments[0]);
  try {
    app.parse(std::move(last_first));
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
