#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "comm/fingerprint.h"
#include "comm/piece_layout.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace tessera {

// The fingerprints of the calls of a Communicator, without their sequence numbers. A Communicator
// makes them when it is called, and a CallList makes them before.

/// A change of the division of a tensor into pieces, one for each rank. An all-to-all makes it.
struct Repartition {
  Shape whole;          ///< the shape of the undivided tensor
  uint64_t before = 0;  ///< PieceLayout::hash() of the division before
  uint64_t after = 0;   ///< and after the all-to-all
};

/// Returns the mark of a call without pieces. `whole` is the shape that all ranks must agree about.
inline Fingerprint call_mark(std::string_view name, Collective collective, DType dtype,
                             const Shape& whole) {
  return {.name = name, .collective = collective, .dtype = dtype, .shape = whole};
}

/// Returns the mark of an all-gather or, with its kind of sum, of a reduce-scatter.
inline Fingerprint pieces_mark(std::string_view name, Collective collective, DType dtype,
                               const Shape& whole, const PieceLayout& layout,
                               Reduction reduction = Reduction::sum) {
  Fingerprint mark = call_mark(name, collective, dtype, whole);
  mark.reduction = reduction;
  mark.layout = layout.hash();
  return mark;
}

inline Fingerprint all_reduce_mark(std::string_view name, DType dtype, const Shape& whole,
                                   Reduction reduction) {
  Fingerprint mark = call_mark(name, Collective::all_reduce, dtype, whole);
  mark.reduction = reduction;
  return mark;
}

/// Returns the mark of an all-to-all of blocks or rows. `operand` is the shape of the operand, or
/// of one row. A repartition has the shape of the whole instead.
inline Fingerprint all_to_all_mark(std::string_view name, Collective collective, DType dtype,
                                   const Shape& operand,
                                   const std::optional<Repartition>& repartition) {
  Fingerprint mark = call_mark(name, collective, dtype, repartition ? repartition->whole : operand);
  mark.layout = repartition ? repartition->before : 0;
  mark.layout_after = repartition ? repartition->after : 0;
  return mark;
}

/// Returns the mark of a message from one rank of the world to another.
inline Fingerprint message_mark(std::string_view name, DType dtype, const Shape& shape, int from,
                                int to) {
  Fingerprint mark = call_mark(name, Collective::message, dtype, shape);
  mark.from = from;
  mark.to = to;
  return mark;
}

}  // namespace tessera
