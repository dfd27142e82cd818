#pragma once

#include <cstdint>

#include "ops/gemm/gemm.h"
#include "program/target.h"

namespace tessera {

// Properties of the processor's matrix products that a memory plan needs. A plan may be for another
// machine, so all functions but host_instructions() depend on their arguments alone.

/// Returns the instructions that products use on this processor. Those for bf16 are left out where
/// f32 is faster: on Intel's processors with AMX, if a virtual machine hides AMX.
MatrixInstructions host_instructions();

/// Returns whether the target multiplies matrices of this type itself. If not, bf16 is widened to
/// f32 part by part, which takes some time; the products are exact in f32 too.
bool multiplies(const Target& target, DType dtype);

/// Returns whether the operands of a product are widened to f32 part by part: if the processor
/// cannot multiply their type, and also in bf16 with AMX if k is odd. There oneDNN 2.6.3 computes
/// some products wrongly (43 rows, 102 columns and k = 63, for example), and executes an illegal
/// instruction in others.
bool widens(const Target& target, const GemmShape& shape);

/// Returns true if the bits of a row of a product depend only on that row and on B. Below AVX-512,
/// oneDNN's products also depend on the number of threads and the number of rows.
bool rows_keep_their_bits(const Target& target);

/// Returns the scratch bytes for one run of a product. A product of prepare_gemm() stays within
/// them: if the library asks for more, it is cut into parts.
int64_t gemm_workspace_bytes(const Target& target, const GemmShape& shape);

/// Returns the bytes that Gemm::pack() writes, or 0 if the product reads B in its given layout.
int64_t gemm_packed_bytes(const Target& target, const GemmShape& shape);

/// Returns the shape with explicit leading dimensions.
GemmShape with_leading(GemmShape shape);

}  // namespace tessera
