#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/fingerprint.h"
#include "tensor/dtype.h"

namespace tessera {

/// Returns whether ranks can reduce elements of this type in this way: sums of bf16, f32, f64 and
/// i32, the maximum of f32 and f64.
bool can_reduce(Reduction reduction, DType dtype);

/// Reduces `elements` elements of each of the addends (at least one), from element `begin` on, to
/// `to`.
///
/// Each result is the first addend's element, to which the second's is added, and so on: the order
/// of the addends alone decides every bit. Sums of bf16 are taken in f32 and rounded once, at the
/// end. Sums of i32 wrap. `to` may be the same memory as the part of an addend that is read.
void reduce(Reduction reduction, DType dtype, std::span<const std::byte* const> addends,
            int64_t begin, int64_t elements, std::byte* to);

}  // namespace tessera
