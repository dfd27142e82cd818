#pragma once

#include <nlohmann/json_fwd.hpp>

#include "ops/gemm/gemm.h"

namespace tessera {

/// Returns the matrices of a product as JSON, as files have them: {"m": 4096, "n": 768, ..., "ldc":
/// 768}. It leaves out how the processor runs the product.
nlohmann::ordered_json gemm_json(const GemmShape& shape);

/// Returns gemm_json() and how the processor runs the product, for traces and accounts: {...,
/// "packed_b": false, "threads": 2}.
nlohmann::ordered_json product_json(const GemmShape& shape);

}  // namespace tessera
