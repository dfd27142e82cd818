#pragma once

#include <string>

#include "hardware/gemm_sweep.h"
#include "hardware/hardware_file.h"

namespace tessera {

// Tables for a terminal, and pictures, of the rates that were measured on a machine.

/// Returns tables of the matrix products that the sweep asked for, in GFLOP/s, and then the peaks.
/// There is one table for each type, layout and k, with m down and n across.
std::string gemm_text(const Hardware& hardware, const GemmSweep& sweep);

/// Returns the same tables as a picture, with a heat map for each. There must be at least one
/// product.
std::string gemm_picture(const Hardware& hardware, const GemmSweep& sweep);

/// Returns a table of bandwidths in GB/s by working set.
std::string memory_text(const Hardware& hardware);

/// Returns the same as a picture of lines. There must be at least one bandwidth.
std::string memory_picture(const Hardware& hardware);

}  // namespace tessera
