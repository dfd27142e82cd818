#pragma once

#include <string>
#include <type_traits>

#include <CLI/CLI.hpp>

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

/// Adds an option that takes a word of an enum. The help shows the words and the default.
template <Worded Enum>
CLI::Option* add_word(CLI::App& command, const std::string& name, std::string& value,
                      const std::string& help) {
  const CLI::IsMember words(words_of<Enum>());
  return command.add_option(name, value, help)->check(words)->capture_default_str();
}

}  // namespace tessera
