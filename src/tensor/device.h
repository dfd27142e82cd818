#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/words.h"

namespace tessera {

/// Where memory lies and operations run. Only the processor's own memory can be read and written in
/// place. `emulated` stands for an accelerator with separate memory, but needs none.
enum class Device : uint8_t { cpu, emulated };
template <>
inline constexpr std::array<std::string_view, 2> kWords<Device>{"cpu", "emulated"};

}  // namespace tessera
