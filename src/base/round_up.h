#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

/// The smallest multiple of `unit` that is not below `count`.
constexpr int64_t round_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

/// The first address at a multiple of `unit` that is not below `address`.
inline std::byte* align_up(std::byte* address, int64_t unit) {
  const auto number = static_cast<int64_t>(reinterpret_cast<uintptr_t>(address));
  return address + (round_up(number, unit) - number);
}

/// The number of units that hold a count.
constexpr int64_t ceil_div(int64_t count, int64_t unit) { return (count + unit - 1) / unit; }

}  // namespace tessera
