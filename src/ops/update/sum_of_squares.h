#pragma once

#include <span>
#include <vector>

#include "ops/update/section.h"
#include "program/builder.h"

namespace tessera {

/// Computes the sum of the squares of all sections of flat values, f64 [1]. It is taken in f64 over
/// pieces that do not depend on the threads. The pieces are added in the order of the sections.
/// Values are f32 or f64. There is no gradient.
Value sum_of_squares(Builder& builder, std::span<const Value> units, std::vector<Section> sections);

}  // namespace tessera
