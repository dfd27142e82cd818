#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hardware/memory_rate.h"

namespace tessera {

/// Throws Error unless each working set takes between one byte and half of `memory` bytes, the
/// memory of the measured device.
void require_memory(std::span<const int64_t> sizes, int64_t memory);

/// Measures every loop over working sets of these sizes, in bytes (see measure_memory()), for about
/// `seconds` seconds each. Each thread is bound to a core (see BoundTeam). `progress` is called
/// before each loop with what is measured next. Throws Error if an InterruptGuard has caught a
/// signal.
std::vector<MemoryRate> measure_memory_sweep(
    std::span<const int64_t> sizes, int threads, double seconds,
    const std::function<void(const std::string& what)>& progress);

}  // namespace tessera
