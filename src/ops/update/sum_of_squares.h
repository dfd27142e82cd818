#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/update/section.h"
#include "program/builder.h"

namespace tessera {

// The squared norm of the gradients, with the same bits for every distribution over ranks. First
// sum_of_squares() adds the squares of fixed runs of elements, on the rank that holds the run.
// After the ranks have exchanged these sums, add_in_order() adds them in a fixed order. A "unit" is
// a flat value with several parameters (section.h). Neither operation has a gradient.

/// The number of consecutive elements of a section whose squares make one sum. If a section begins
/// at a multiple of this number in its parameter, its sums are also sums of the whole parameter.
inline constexpr int64_t kSquaresElements = 4096;

/// Returns the number of sums that sum_of_squares() makes of `elements` elements of a section.
inline int64_t squares_sums(int64_t elements) {
  return (elements + kSquaresElements - 1) / kSquaresElements;
}

/// A section of a unit, and the index of its first sum.
struct SquaresSection {
  Section section;
  int64_t first_sum = 0;
};

/// Adds up the squares of all sections, in f64, over kSquaresElements elements each: f64 [sums], in
/// the order of the sections. Units are f32 or f64.
Value sum_of_squares(Builder& builder, std::span<const Value> units,
                     const std::vector<Section>& sections);

/// Does the same for a rank's share of the sections of several ranks: f64 [sum_count], with zeros
/// for the sections that the rank does not have. In a sum over the ranks at most one addend is not
/// zero, so the sum is exact: it has the bits that one rank with all sections would have.
Value sum_of_squares(Builder& builder, std::span<const Value> units,
                     std::vector<SquaresSection> sections, int64_t sum_count);

/// Adds up `sections` of the values `sums`, f64: f64 [1]. The order of the additions follows from
/// the sizes and the order of the sections alone (the processor adds one element after another). So
/// the bits do not depend on which value holds a section.
Value add_in_order(Builder& builder, std::span<const Value> sums, std::vector<Section> sections);

}  // namespace tessera
