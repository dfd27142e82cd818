#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace tessera {

/// The words for an enum's values in configurations and files, one per value from 0 on:
///   template <>
///   inline constexpr std::array<std::string_view, 2> kWords<NormKind>{"rms", "layer"};
/// Enums without words cannot be read or written.
template <typename Enum>
inline constexpr std::array<std::string_view, 0> kWords{};

/// An enum that has words.
template <typename Enum>
concept Worded = std::is_enum_v<Enum> && !kWords<Enum>.empty();

/// The word of a value.
template <Worded Enum>
std::string_view word(Enum value) {
  const auto index = static_cast<size_t>(value);
  TESSERA_CHECK(index < kWords<Enum>.size(), "a value without a word: {}", index);
  return kWords<Enum>[index];
}

/// The value of a word, or none if no value has that word.
template <Worded Enum>
std::optional<Enum> find_word(std::string_view text) {
  const auto found = std::ranges::find(kWords<Enum>, text);
  if (found == kWords<Enum>.end()) return std::nullopt;
  return static_cast<Enum>(found - kWords<Enum>.begin());
}

/// All words, for rules and options that accept one of them.
template <Worded Enum>
std::vector<std::string> words_of() {
  return {kWords<Enum>.begin(), kWords<Enum>.end()};
}

/// The value of a word out of a file. Throws Error, naming the known words, if no value has it.
/// `what` is the thing that the enum says, such as "memory loop".
template <Worded Enum>
Enum known_word(std::string_view text, std::string_view what) {
  const std::optional<Enum> value = find_word<Enum>(text);
  if (!value) {
    throw Error("there is no {} '{}'; known are {}", what, text, join(words_of<Enum>(), ", "));
  }
  return *value;
}

/// The value of a word that is known to be valid.
template <Worded Enum>
Enum from_word(std::string_view text) {
  const std::optional<Enum> value = find_word<Enum>(text);
  TESSERA_CHECK(value.has_value(), "no value is called {}", text);
  return *value;
}

}  // namespace tessera
