#pragma once

#include "program/context.h"
#include "tensor/dtype.h"

namespace tessera {

/// The best rate of a square matrix product of this type on that many threads, in floating-point
/// operations a second, measured for a few tenths of a second: what MFU refers to. The matrices
/// have 2048 rows, in f64 (plain loops) 256, and hold random normal numbers.
double measure_gemm_peak(int threads, DType dtype);

}  // namespace tessera
