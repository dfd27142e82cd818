#pragma once

#include <concepts>
#include <cstring>
#include <ranges>
#include <vector>

#include "support/run_program.h"

namespace tessera::testing {

/// Every bit of some results, one after the other: zeros of either sign differ.
using Bits = std::vector<unsigned char>;

/// Appends the bits of a number, or of all numbers of a list, which may hold lists.
template <typename Result>
void append_bits(Bits& bits, const Result& result) {
  if constexpr (std::ranges::range<Result>) {
    for (const auto& element : result) append_bits(bits, element);
  } else {
    static_assert(std::is_arithmetic_v<Result> || std::same_as<Result, std::byte> ||
                  std::same_as<Result, BFloat16>);
    const size_t before = bits.size();
    bits.resize(before + sizeof(result));
    std::memcpy(bits.data() + before, &result, sizeof(result));
  }
}

template <std::ranges::range... Results>
Bits bits_of(const Results&... results) {
  Bits bits;
  (append_bits(bits, results), ...);
  return bits;
}

inline Bits bits_of(const RunResult& result) { return bits_of(result.outputs, result.gradients); }

}  // namespace tessera::testing
