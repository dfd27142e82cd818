#pragma once

#include <memory>

#include "ops/gemm/gemm.h"

namespace tessera {

/// The definition of a product: a triple loop in the accumulation type, parallel over rows.
std::unique_ptr<Gemm> make_plain_gemm(const GemmShape& shape);

/// Makes oneDNN's matmul within gemm_workspace_bytes(). It is fastest if at most as many threads of
/// one team run it as the target has. Returns null in a build without oneDNN.
std::unique_ptr<Gemm> make_onednn_gemm(const GemmShape& shape, const Target& target);

}  // namespace tessera
