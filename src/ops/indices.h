#pragma once

#include <cstdint>
#include <string_view>

#include "program/operation.h"

namespace tessera {

/// Checks that all of a tensor's i32 indices are in [least, extent). They count rows or classes of
/// a whole tensor, even if ranks share it. Otherwise throws Error, which names the node, the first
/// wrong index and the bounds. There, `what` is the word for an index: "id", "target".
void require_indices(const Execution& execution, std::string_view what, const Tensor& indices,
                     int64_t least, int64_t extent);

}  // namespace tessera
