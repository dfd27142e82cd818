#pragma once

#include <cstdint>

#include "ops/gemm/gemm.h"
#include "program/target.h"

namespace tessera {

// What a plan asks of matrix products before there is any: pure functions of the target.

/// The instructions that products use on this processor.
MatrixInstructions host_instructions();

/// Whether the target multiplies matrices of this type; otherwise bf16 is widened to f32 part by
/// part, which takes some time and gives the same sums.
bool multiplies(const Target& target, DType dtype);

/// Whether the bits of a row of a product depend on that row and on B alone. oneDNN's products
/// below AVX-512 also depend on the number of threads and on how many rows there are.
bool rows_keep_their_bits(const Target& target);

/// Scratch bytes for one run of a product. It is a limit that prepare_gemm() keeps: a product for
/// which the library asks for more is cut into parts.
int64_t gemm_workspace_bytes(const Target& target, const GemmShape& shape);

/// Bytes for what Gemm::pack() writes: 0 where the product takes B as it lies.
int64_t gemm_packed_bytes(const Target& target, const GemmShape& shape);

/// The shape with its leading dimensions written out.
GemmShape with_leading(GemmShape shape);

}  // namespace tessera
