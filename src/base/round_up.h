#pragma once

#include <cstdint>

namespace tessera {

/// The smallest multiple of `unit` that is not below `count`.
constexpr int64_t round_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

/// The number of units that hold a count.
constexpr int64_t ceil_div(int64_t count, int64_t unit) { return (count + unit - 1) / unit; }

}  // namespace tessera
