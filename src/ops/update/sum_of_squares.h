#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/update/section.h"
#include "program/builder.h"

namespace tessera {

/// The number of elements whose squares are added into one sum, counted from a section's first one.
/// So a section that begins at a multiple of it in its parameter has the same sums as the whole
/// parameter has there.
inline constexpr int64_t kSquaresElements = 4096;

/// Returns the number of sums that sum_of_squares() makes of `elements` elements of a section.
inline int64_t squares_sums(int64_t elements) {
  return (elements + kSquaresElements - 1) / kSquaresElements;
}

/// A section of a flat value, and the index of its first sum.
struct SquaresSection {
  Section section;
  int64_t first_sum = 0;
};

/// Adds up the squares of all sections of flat values, in f64, over kSquaresElements elements each:
/// f64 [sums], in the order of the sections. add_in_order() adds up these sums. Values are f32 or
/// f64. There is no gradient.
Value sum_of_squares(Builder& builder, std::span<const Value> units,
                     const std::vector<Section>& sections);

/// Adds up the squares of a rank's share of the sections of several ranks: f64 [sums], with zeros
/// for sums of sections that the rank does not have. The sum over the ranks is exact, because only
/// one of its addends is not zero: it has the bits that one rank with all sections would have.
Value sum_of_squares(Builder& builder, std::span<const Value> units,
                     std::vector<SquaresSection> sections, int64_t sums);

}  // namespace tessera
