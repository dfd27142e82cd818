#include "cli/command_description.h"

#include <CLI/CLI.hpp>

namespace tessera {
namespace {

/// Returns the choices in the library's name of a type: "TEXT:{bf16,fp32}" is a text that must be
/// one of the two.
std::vector<std::string> choices_of(const std::string& type) {
  const size_t begin = type.find('{');
  const size_t end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

OptionDescription describe_option(const CLI::Option& option) {
  OptionDescription result;
  result.positional = option.get_positional();
  if (result.positional) {
    result.names = {option.get_name(/*positional=*/true)};
  } else {
    for (const std::string& name : option.get_snames()) result.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) result.names.push_back("--" + name);
  }
  const std::string type = option.get_type_name();
  result.takes_value = option.get_expected_max() > 0;
  result.required = option.get_required();
  result.repeats = option.get_expected_max() > 1;
  if (result.takes_value) {
    result.value = type.substr(0, type.find(':'));
    result.default_value = option.get_default_str();
  }
  result.description = option.get_description();
  result.choices = choices_of(type);
  return result;
}

}  // namespace

CommandDescription describe_command(const CLI::App& app) {
  CommandDescription result{.name = app.get_name(), .description = app.get_description()};
  result.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) {
    result.options.push_back(describe_option(*option));
  }
  for (const CLI::App* subcommand : app.get_subcommands([](const CLI::App*) { return true; })) {
    result.subcommands.push_back(describe_command(*subcommand));
  }
  return result;
}

}  // namespace tessera
