#pragma once

#include <memory>

#include "ops/gemm/gemm.h"

namespace tessera {

/// Returns a product by its definition: a triple loop in the accumulation type, parallel over rows.
std::unique_ptr<Gemm> make_plain_gemm(const GemmShape& shape);

/// Returns oneDNN's matmul within gemm_workspace_bytes(), or null in a build without oneDNN. It is
/// fastest if at most as many threads of one team run it as the target has.
std::unique_ptr<Gemm> make_onednn_gemm(const GemmShape& shape, const Target& target);

}  // namespace tessera
