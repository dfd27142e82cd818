#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/worded.h"

namespace tessera {

/// A device: it has memory for tensors and runs operations on them. Only the processor's own memory
/// can be read and written in place. `emulated` is an accelerator with separate memory and streams
/// that needs no hardware: it runs the kernels of the GPUs on the processor, to test them.
enum class Device : uint8_t { cpu, emulated, cuda, hip };
template <>
inline constexpr std::array<std::string_view, 4> kWordsOf<Device>{"cpu", "emulated", "cuda", "hip"};

/// Returns whether a device is a GPU, for which libraries compute matrix products and attention.
constexpr bool is_gpu(Device device) { return device == Device::cuda || device == Device::hip; }

}  // namespace tessera
