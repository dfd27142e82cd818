#pragma once

#include <span>
#include <vector>

#include "ops/update/section.h"
#include "program/builder.h"

namespace tessera {

/// Adds up sections of `sums`, f64 each, element after element in the order of the sections: f64
/// [1]. So the bits do not depend on which value holds a section. There is no gradient.
Value add_in_order(Builder& builder, std::span<const Value> sums, std::vector<Section> sections);

}  // namespace tessera
