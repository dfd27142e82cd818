#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

/// Returns the smallest multiple of `unit` that is not below `count`.
constexpr int64_t round_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

/// Returns the first address that is a multiple of `unit` and not below `address`.
inline std::byte* align_up(std::byte* address, int64_t unit) {
  const auto value = static_cast<int64_t>(reinterpret_cast<uintptr_t>(address));
  return address + (round_up(value, unit) - value);
}

/// Returns the number of units that hold `count`: the quotient, rounded up.
constexpr int64_t ceil_div(int64_t count, int64_t unit) { return (count + unit - 1) / unit; }

}  // namespace tessera
