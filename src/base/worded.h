#pragma once

#include <array>
#include <string_view>
#include <type_traits>

namespace tessera {

/// The words for an enum's values in configurations and files, one per value from 0 on:
///   template <>
///   inline constexpr std::array<std::string_view, 2> kWordsOf<NormKind>{"rms", "layer"};
/// base/words.h reads and writes such enums.
template <typename Enum>
inline constexpr std::array<std::string_view, 0> kWordsOf{};

/// An enum that has words.
template <typename Enum>
concept Worded = std::is_enum_v<Enum> && !kWordsOf<Enum>.empty();

}  // namespace tessera
