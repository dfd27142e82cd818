#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/words.h"

namespace tessera {

/// Adds an option that takes a number from `least` to `most`. The help shows its default.
template <typename Number>
CLI::Option* add_number(CLI::App& command, const std::string& name, Number& value,
                        std::type_identity_t<Number> least, std::type_identity_t<Number> most,
                        const std::string& help) {
  const CLI::Range range(least, most);
  return command.add_option(name, value, help)->check(range)->capture_default_str();
}

/// Returns a check that a number is `least` or more.
CLI::Validator number_from(int64_t least);

/// Returns a check that a number is more than 0.
CLI::Validator number_above_zero();

/// Returns a check of a size as parse_bytes() reads it, which then becomes its number of bytes. The
/// limits are sizes too.
CLI::Validator size_between(std::string_view least, std::string_view most);

/// Adds an option that takes a word of an enum. The help shows the words and the default.
template <Worded Enum>
CLI::Option* add_word(CLI::App& command, const std::string& name, std::string& value,
                      const std::string& help) {
  const CLI::IsMember words(words_of<Enum>());
  return command.add_option(name, value, help)->check(words)->capture_default_str();
}

/// Returns a check that an entry of a list is not empty.
CLI::Validator entry_check();

/// Adds an option that takes a list such as "8,16". Refuses empty entries, and entries of which two
/// have the same value. The help shows the default.
template <typename Value>
CLI::Option* add_list(CLI::App& command, const std::string& name, std::vector<Value>& values,
                      const std::string& help) {
  const auto store = [&values, name](const std::vector<Value>& given) {
    for (auto entry = given.begin(); entry != given.end(); ++entry) {
      if (std::find(given.begin(), entry, *entry) == entry) continue;
      throw CLI::ValidationError(name, fmt::format("found {} twice; expected it once", *entry));
    }
    values = given;
  };
  return command.add_option_function<std::vector<Value>>(name, store, help)
      ->delimiter(',')
      ->check(entry_check())
      ->default_str(fmt::format("{}", fmt::join(values, ",")));
}

/// Adds an option that takes a list of sizes from 1 byte to 1 PB. `shown` is the default as people
/// write it.
CLI::Option* add_size_list(CLI::App& command, const std::string& name, std::vector<int64_t>& bytes,
                           const std::string& shown, const std::string& help);

}  // namespace tessera
