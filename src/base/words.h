#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/worded.h"

namespace tessera {

/// Returns the word of a value.
template <Worded Enum>
std::string_view word(Enum value) {
  const auto index = static_cast<size_t>(value);
  TESSERA_CHECK(index < kWordsOf<Enum>.size(), "a value without a word: {}", index);
  return kWordsOf<Enum>[index];
}

/// Returns the value of a word, or none if no value has that word.
template <Worded Enum>
std::optional<Enum> value_of_word(std::string_view text) {
  const auto found = std::ranges::find(kWordsOf<Enum>, text);
  if (found == kWordsOf<Enum>.end()) return std::nullopt;
  return static_cast<Enum>(found - kWordsOf<Enum>.begin());
}

/// Returns all words of an enum, for rules and options that accept one of them.
template <Worded Enum>
std::vector<std::string> words_of() {
  return {kWordsOf<Enum>.begin(), kWordsOf<Enum>.end()};
}

/// Returns the value of a word that was read from a file. Throws Error, naming the known words, if
/// no value has it. `noun` names what the enum stands for, such as "memory loop".
template <Worded Enum>
Enum known_word(std::string_view text, std::string_view noun) {
  const std::optional<Enum> value = value_of_word<Enum>(text);
  if (!value) {
    throw Error("there is no {} '{}'; known are {}", noun, text, join(words_of<Enum>(), ", "));
  }
  return *value;
}

/// Returns the value of a word that our own code has checked. Throws InternalError if none has it.
template <Worded Enum>
Enum from_word(std::string_view text) {
  const std::optional<Enum> value = value_of_word<Enum>(text);
  TESSERA_CHECK(value.has_value(), "no value is called {}", text);
  return *value;
}

}  // namespace tessera
