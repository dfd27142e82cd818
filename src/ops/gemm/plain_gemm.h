#pragma once

#include <memory>

#include "ops/gemm/gemm.h"

namespace tessera {

/// The definition: a triple loop in the accumulation type, parallel over rows.
std::unique_ptr<Gemm> make_plain_gemm(const GemmShape& shape);

/// oneDNN's matmul, fastest when run by up to `callers` threads of one team at once; null in a
/// build without oneDNN.
std::unique_ptr<Gemm> make_onednn_gemm(const GemmShape& shape, int callers);

}  // namespace tessera
