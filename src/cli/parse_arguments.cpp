#include "cli/parse_arguments.h"

#include <algorithm>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace tessera {
namespace {

/// Follows an argument that ends with a bracket while the library has it, so that the library finds
/// no list in it. The system's arguments cannot contain this character.
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
    std::vector<std::string> unexpected = app.remaining(/*recurse=*/true);
    std::ranges::transform(unexpected, unexpected.begin(), as_typed);
    std::ranges::reverse(unexpected);  // the library lists them from the end
    throw CLI::ExtrasError(app.get_name(), unexpected);
  }
}

}  // namespace tessera
