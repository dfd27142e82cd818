#pragma once

#include <cstdint>

#include "ops/collective/quantised_piece.h"
#include "program/operation.h"
#include "tensor/tensor.h"

namespace tessera {

// Block quantisation, in which weights and gradients travel between ranks as small integers
// (ZeRO++; ZeRO-topo). quantised_piece.h has the form of a message. A block of elements has a
// factor s and a scale 1 / s, both of f32:
//   s = L / m, with the largest magnitude m of the block, and L = 127 in int8 or 7 in int4
//   q = x s, rounded to the nearest integer, ties to even
//   x is restored as q (1 / s)
// The result of each operation is rounded to f32. So all devices and any number of threads give
// the same bits.
//
// L is 2^(n-1) - 1 for n bits. DeepSpeed takes 2^(n-1) and clips the largest positive element of a
// block by a whole step, to 127/128 or 7/8 of itself. Such errors have one sign, so they add up
// over ranks. Here no element is clipped, and -x gives -q. In return, a step is 128/127 times as
// large in int8, and 8/7 times in int4.
//
// A restored element differs from x by half of its block's scale at most, but for the rounding to
// f32. Some blocks are special:
//   - A block with a NaN or an infinity has NaN as its scale, and integers of zero. All of its
//     elements are restored as NaN, so that checks of sums and norms find them.
//   - Elements with magnitudes below 2^-126 count as zeros, whether or not the processor flushes
//     such numbers.
//   - A block of zeros has the scale 1. So has a block with m below L 2^-126, whose elements become
//     zeros: its scale would be below 2^-126.
//   - Where m is the largest float or within 2^-22 of it, it may be restored as an infinity.

/// How far the rounding errors of earlier steps are added to the next addends (LoCo).
struct ErrorFeedback {
  Tensor error;       ///< f32, as many elements as the addends; zeros before the first step
  double beta = 0.8;  ///< the share of the error that is kept
};

/// Returns the bytes of a piece of `elements` elements, a multiple of 16.
int64_t quantised_bytes(const QuantisedFormat& format, int64_t elements);

// The functions below run in the order of the execution's work, on its threads or its device, and
// use nothing else of it. `piece` is a tensor of u8 with quantised_bytes() bytes, aligned to 16. It
// shares no memory with the other tensors, which may begin anywhere.

/// Quantises the elements of a tensor of f32 or bf16.
void quantise(const Execution& execution, const QuantisedFormat& format, const Tensor& values,
              const Tensor& piece);

/// Quantises y = x + e, where x is a tensor of f32 and e the error of `feedback`. Then it updates
///   e = beta e + (1 - beta) (y - the restored y)
/// with factors rounded to f32. Where y has a NaN or an infinity, e of the whole block stays as it
/// is: it would be NaN in all later steps. Numbers below 2^-126 in the update of e are flushed to
/// zero if the processor does that.
void quantise_with_feedback(const Execution& execution, const QuantisedFormat& format,
                            const Tensor& values, const ErrorFeedback& feedback,
                            const Tensor& piece);

/// Writes the restored elements to a tensor of f32, or rounds them to one of bf16.
void dequantise(const Execution& execution, const QuantisedFormat& format, const Tensor& piece,
                const Tensor& values);

/// Adds the restored elements to a tensor of f32. Each is rounded before it is added. Calls for the
/// pieces of several ranks take a sum in the order of the calls.
void dequantise_add(const Execution& execution, const QuantisedFormat& format, const Tensor& piece,
                    const Tensor& sums);

}  // namespace tessera
