#pragma once

#include <cstdint>
#include <string_view>

#include "program/operation.h"

namespace tessera {

/// Checks an i32 tensor of indices of rows or classes of a whole tensor, which ranks may share.
/// `what` names one of them in the error: "id", "target". Throws Error, which names the node, the
/// index and the extent, if one is below `least` or not below `extent`.
void require_indices(const Execution& execution, std::string_view what, const Tensor& numbers,
                     int64_t least, int64_t extent);

}  // namespace tessera
