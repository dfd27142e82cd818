#pragma once

#include "program/context.h"
#include "tensor/dtype.h"

namespace tessera {

/// The best rate of a square matrix product (2048 on a side) of this type on the context's threads,
/// in floating-point operations a second, measured for a few tenths of a second: what MFU refers
/// to.
double measure_gemm_peak(int threads, DType dtype);

}  // namespace tessera
