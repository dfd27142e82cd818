#pragma once

#include <cstdint>
#include <memory>

#include "device/accelerator.h"
#include "ops/gemm/device_gemm.h"

namespace tessera {

/// Returns memory of the device full of random numbers, of bf16 or f32: zeros would draw less
/// power, and let products run faster.
std::unique_ptr<DeviceMemory> random_operand(Accelerator& accelerator, int64_t bytes,
                                             uint64_t seed);

/// Returns the number of runs, of `seconds` each, in a sample of a tuning run.
int64_t runs_of_sample(double seconds, const TuningBudget& budget);

}  // namespace tessera
