#pragma once

#include <cstdint>
#include <string_view>

#include "program/operation.h"

namespace tessera {

/// Checks that all of a tensor's i32 indices are in [least, extent). Otherwise throws Error, which
/// names the node, the bounds, the first wrong index and its token; `what` is the word for it:
/// "id", "target". The bounds are those of the whole tensor.
void require_indices(const Execution& execution, std::string_view what, const Tensor& indices,
                     int64_t least, int64_t extent);

}  // namespace tessera
