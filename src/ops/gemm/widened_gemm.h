#pragma once

#include <functional>
#include <memory>

#include "ops/gemm/gemm.h"

namespace tessera {

/// Returns a product of bf16 for a processor that has none. Parts of the operands are widened to
/// f32 and multiplied by `make`'s products, so the sums are the same f32 sums of exact products.
/// Some megabytes are widened at once, whatever m and n are.
std::unique_ptr<Gemm> make_widened_gemm(const GemmShape& shape, const MakeGemm& make);

/// Returns the scratch bytes of such a product. `part_bytes` returns the bytes of a product of f32.
int64_t widened_workspace_bytes(const GemmShape& shape,
                                const std::function<int64_t(const GemmShape&)>& part_bytes);

}  // namespace tessera
