#pragma once

#include <cstdint>
#include <optional>

#include "comm/wire_format.h"
#include "ops/collective/quantise.h"
#include "program/operation.h"
#include "tensor/tensor.h"

namespace tessera {

// Pieces of tensors as messages carry them in a wire format that rounds: bf16, int8 or int4. A
// piece is a tensor of u8, aligned to 16 bytes. The functions run in the order of the execution's
// work, on its threads or its device.

/// Returns whether elements of this type are rounded to travel in a format. All formats round f32,
/// and integers round bf16 too. Nothing rounds f64, in which layouts are verified.
bool is_rounded_by(const Wire& wire, DType dtype);

/// Returns the bytes of a piece of `elements` elements. The format rounds.
int64_t wire_bytes(const Wire& wire, int64_t elements);

/// Rounds a tensor of f32, or of bf16 to integers, to a piece. With `feedback`, rounding errors of
/// earlier calls are added first (quantise_with_feedback()), which needs f32 and integers.
void to_wire(const Execution& execution, const Wire& wire, const Tensor& values,
             const Tensor& piece, const std::optional<ErrorFeedback>& feedback = {});

/// Writes the elements of a piece to a tensor of f32, or of integers to one of bf16.
void from_wire(const Execution& execution, const Wire& wire, const Tensor& piece,
               const Tensor& values);

/// Adds the elements of a piece to a tensor of f32.
void add_from_wire(const Execution& execution, const Wire& wire, const Tensor& piece,
                   const Tensor& sums);

}  // namespace tessera
