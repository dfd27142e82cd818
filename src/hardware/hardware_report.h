#pragma once

#include <string>

#include "hardware/gemm_sweep.h"
#include "hardware/hardware_file.h"

namespace tessera {

/// Tables of the matrix products that the sweep asked for in GFLOP/s, one for each type, layout and
/// k, with m down and n across; and the peaks.
std::string gemm_text(const Hardware& hardware, const GemmSweep& sweep);

/// The same as a picture: a heat map for each table. There is at least one product.
std::string gemm_picture(const Hardware& hardware, const GemmSweep& sweep);

/// A table of bandwidths in GB/s by working set.
std::string memory_text(const Hardware& hardware);

/// The same as a picture of lines. There is at least one bandwidth.
std::string memory_picture(const Hardware& hardware);

}  // namespace tessera
