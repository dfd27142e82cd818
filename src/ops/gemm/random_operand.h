#pragma once

#include <cstdint>
#include <memory>

#include "device/accelerator.h"
#include "ops/gemm/device_gemm.h"

namespace tessera {

/// Returns memory of the device that is full of random numbers of bf16 or f32. Zeros would draw
/// less power, so the GPU would run faster than in training.
std::unique_ptr<DeviceMemory> random_operand(Accelerator& accelerator, int64_t bytes,
                                             uint64_t seed);

/// Returns the number of runs, of `seconds` each, that one sample of a measurement takes, from 1 to
/// 1000.
int64_t runs_of_sample(double seconds, const TuningBudget& budget);

}  // namespace tessera
