#include "cli/options.h"

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

/// Returns a check of numbers. `expected` describes those that are allowed, in the help too.
/// `forbids` says whether a number is not. It leaves nan to parse_arguments().
template <typename Forbids>
CLI::Validator number_check(const std::string& expected, const Forbids& forbids) {
  const auto problem = [=](const std::string& text) -> std::string {
    double number = 0;
    if (CLI::detail::lexical_cast(text, number) && !forbids(number)) return "";
    return fmt::format("found {}; expected {}", text, expected);
  };
  return CLI::Validator(problem, expected);
}

}  // namespace

CLI::Validator number_from(int64_t least) {
  return number_check(fmt::format("{} or more", least),
                      [=](double number) { return number < static_cast<double>(least); });
}

CLI::Validator number_above_zero() {
  return number_check("more than 0", [](double number) { return number <= 0; });
}

CLI::Validator size_between(std::string_view least, std::string_view most) {
  const int64_t least_bytes = parse_bytes(least), most_bytes = parse_bytes(most);
  const std::string limits = fmt::format("{} to {}", least, most);
  const auto replace = [=](std::string& text) -> std::string {
    try {
      const int64_t bytes = parse_bytes(text);
      if (bytes < least_bytes || bytes > most_bytes) {
        return fmt::format("found '{}'; expected a size from {}", text, limits);
      }
      text = std::to_string(bytes);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  return CLI::Validator(replace, "");
}

CLI::Validator entry_check() {
  const auto problem = [](const std::string& entry) {
    return entry.empty() ? "found an empty entry; expected a list such as A,B,C" : "";
  };
  return CLI::Validator(problem, "");
}

CLI::Option* add_size_list(CLI::App& command, const std::string& name, std::vector<int64_t>& bytes,
                           const std::string& shown, const std::string& help) {
  return add_list(command, name, bytes, help)
      ->transform(size_between("1B", "1PB"))
      ->transform(entry_check())  // it comes before
      ->type_name("SIZE")
      ->default_str(shown);
}

}  // namespace tessera
