#pragma once

#include <cstdint>
#include <string_view>

#include "program/operation.h"

namespace tessera {

/// Checks the numbers of an i32 tensor that count the rows or classes of a whole, wherever the
/// ranks have them. `what` is what one of them is: "id", "target". Throws Error, which names the
/// node, the number and the extent, if one is below `least` or not below `extent`.
void require_indices(const Execution& execution, std::string_view what, const Tensor& numbers,
                     int64_t least, int64_t extent);

}  // namespace tessera
