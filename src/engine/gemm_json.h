#pragma once

#include <nlohmann/json_fwd.hpp>

#include "ops/gemm/gemm.h"

namespace tessera {

/// Returns the sizes, dtypes and layouts of a product's matrices as JSON: {"m": 4096, "n": 768,
/// ..., "ldc": 768}. The object leaves out whether B is packed and the number of threads.
nlohmann::ordered_json gemm_json(const GemmShape& shape);

/// Returns gemm_json() and these two fields, for traces: {..., "packed_b": false, "threads": 2}.
nlohmann::ordered_json product_json(const GemmShape& shape);

}  // namespace tessera
