#pragma once

#include <functional>
#include <memory>

#include "ops/gemm/gemm.h"

namespace tessera {

/// A product of bf16 for a processor that has none: parts of the operands are widened to f32 and
/// multiplied by `make`'s products, so that sums are the same f32 sums of exact products. What is
/// widened at once is some megabytes, whatever m and n.
std::unique_ptr<Gemm> make_widened_gemm(
    const GemmShape& shape, const std::function<std::unique_ptr<Gemm>(const GemmShape&)>& make);

/// Its scratch bytes, where `part_bytes` are those of a product of f32.
int64_t widened_workspace_bytes(const GemmShape& shape,
                                const std::function<int64_t(const GemmShape&)>& part_bytes);

}  // namespace tessera
