#pragma once

#include <cstdint>

#include "ops/gemm/gemm.h"
#include "program/target.h"

namespace tessera {

// Properties of matrix products that a memory plan needs. A plan is made before the products exist,
// and it may be for another machine. So all functions but host_instructions() are pure functions of
// the target and the shape.

/// Returns the instructions that products use on this processor. Instructions for bf16 are left out
/// where f32 is faster: on Intel's processors that have AMX, in virtual machines that hide AMX.
MatrixInstructions host_instructions();

/// Returns true if the target multiplies matrices of this type. If it does not, bf16 is widened to
/// f32 part by part, which takes some time and gives the same sums.
bool multiplies(const Target& target, DType dtype);

/// Returns whether the operands of a product are widened to f32 part by part. They are if the
/// processor cannot multiply their type. With AMX they also are if k is odd: oneDNN 2.6.3 computes
/// some of these products wrongly (43 rows, 102 columns and k = 63, for example), and executes an
/// illegal instruction in others.
bool widens(const Target& target, const GemmShape& shape);

/// Returns true if the bits of a row of a product depend only on that row and on B. Below AVX-512,
/// oneDNN's products also depend on the number of threads and the number of rows.
bool rows_keep_their_bits(const Target& target);

/// Returns the scratch bytes for one run of a product. prepare_gemm() keeps this limit: if the
/// library asks for more, the product is cut into parts.
int64_t gemm_workspace_bytes(const Target& target, const GemmShape& shape);

/// Returns the bytes that Gemm::pack() writes, or 0 if the product reads B in its given layout.
int64_t gemm_packed_bytes(const Target& target, const GemmShape& shape);

/// Returns the shape with explicit leading dimensions.
GemmShape with_leading(GemmShape shape);

}  // namespace tessera
