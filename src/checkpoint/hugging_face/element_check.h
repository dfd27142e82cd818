#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace tessera::hugging_face {

/// Returns the index of the first NaN or infinity among elements of a floating type, or -1 if all
/// are finite. The elements need not be aligned.
int64_t first_non_finite_element(std::span<const std::byte> bytes, DType dtype);

}  // namespace tessera::hugging_face
