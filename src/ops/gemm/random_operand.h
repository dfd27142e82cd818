#pragma once

#include <cstdint>
#include <memory>

#include "device/accelerator.h"
#include "ops/gemm/device_gemm.h"

namespace tessera {

/// Returns memory of the device that is full of random numbers, valid as bf16 and as f32. With
/// zeros the GPU would draw less power, and so run faster than in training.
std::unique_ptr<DeviceMemory> random_operand(Accelerator& accelerator, int64_t bytes,
                                             uint64_t seed);

/// Returns the number of runs in one sample of a measurement, from 1 to 1000. `seconds` is the time
/// of one run.
int64_t runs_of_sample(double seconds, const TuningBudget& budget);

}  // namespace tessera
