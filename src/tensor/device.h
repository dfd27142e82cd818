#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

/// Where memory lies and operations run. Only the processor's own memory can be read and written in
/// place; `emulated` stands for an accelerator, with memory apart, that needs none.
enum class Device : uint8_t { cpu, emulated };

/// "cpu", "emulated".
std::string_view device_name(Device device);

}  // namespace tessera
