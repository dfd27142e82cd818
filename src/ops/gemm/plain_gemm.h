#pragma once

#include <memory>

#include "ops/gemm/gemm.h"

namespace tessera {

/// The definition: a triple loop in the accumulation type, parallel over rows.
std::unique_ptr<Gemm> make_plain_gemm(const GemmShape& shape);

/// oneDNN's matmul within gemm_workspace_bytes(), fastest when run by up to as many threads of one
/// team as the target has; null in a build without oneDNN.
std::unique_ptr<Gemm> make_onednn_gemm(const GemmShape& shape, const Target& target);

}  // namespace tessera
