#pragma once

namespace tessera {

/// Returns a vector or matrix instruction set that the program was compiled to use and this
/// processor lacks, such as "AVX-512"; null if there is none. Call it first, because any other code
/// may use these instructions.
const char* missing_processor_feature();

}  // namespace tessera
