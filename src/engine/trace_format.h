#pragma once

#include <nlohmann/json_fwd.hpp>

#include "ops/gemm/gemm.h"

namespace tessera {

// Constants that the writer and the reader of a trace share.

inline constexpr double kTraceMicroseconds = 1e6;  ///< one second in the format's unit of time
inline constexpr const char* kTraceVersionKey = "tessera_trace";
inline constexpr int kTraceVersion = 2;
/// The block of the event that spans all others.
inline constexpr const char* kTraceStepBlock = "step";

/// Returns a matrix product as JSON, in traces and accounts: {"m": 4096, "n": 768, ..., "threads":
/// 2}.
nlohmann::ordered_json product_json(const GemmShape& shape);

}  // namespace tessera
