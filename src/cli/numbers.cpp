#include "cli/numbers.h"

#include <algorithm>
#include <cctype>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace tessera {
namespace {

bool is_number(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT");
}

/// Returns the problem with a number's text; empty if there is none that the library would miss.
std::string number_problem(std::string text) {
  if (text.empty()) return "found nothing; expected a number";
  std::ranges::transform(text, text.begin(),
                         [](unsigned char letter) { return std::tolower(letter); });
  if (text.find("nan") == std::string::npos && text.find("inf") == std::string::npos) return "";
  return fmt::format("found {}; expected a finite number", text);
}

}  // namespace

void refuse_what_is_no_number(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (is_number(*option)) option->check(CLI::Validator(number_problem, ""));
  }
  for (CLI::App* command : app.get_subcommands({})) refuse_what_is_no_number(*command);
}

}  // namespace tessera
