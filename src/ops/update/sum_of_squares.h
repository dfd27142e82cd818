#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/update/section.h"
#include "program/builder.h"

namespace tessera {

/// The elements of which the squares are added into one sum, from a section's first one on. So what
/// begins at a multiple of them in its parameter has the same sums as in the whole parameter.
inline constexpr int64_t kSquaresElements = 4096;

/// The sums of squares that sum_of_squares() makes of so many elements of a section.
inline int64_t squares_sums(int64_t elements) {
  return (elements + kSquaresElements - 1) / kSquaresElements;
}

/// A section of a flat value, and the place of the first of its sums.
struct SquaresSection {
  Section section;
  int64_t first_sum = 0;
};

/// Computes the squares of all sections of flat values, added up in f64 over kSquaresElements
/// elements each: f64 [sums], in the order of the sections. add_in_order() takes the sum of those
/// sums. Values are f32 or f64. There is no gradient.
Value sum_of_squares(Builder& builder, std::span<const Value> units,
                     const std::vector<Section>& sections);

/// The same of sections that are a part of those of several ranks: f64 [sums], with zeros where
/// none of these sections has its sums. The sum over the ranks is exact, because one of its addends
/// alone is not zero: it has the bits that one rank with all sections would have.
Value sum_of_squares(Builder& builder, std::span<const Value> units,
                     std::vector<SquaresSection> sections, int64_t sums);

}  // namespace tessera
