#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace tessera::hugging_face {

/// The index of the first NaN or infinity among elements of a floating type, which need not be
/// aligned; -1 when all are finite.
int64_t first_non_finite_element(std::span<const std::byte> bytes, DType dtype);

}  // namespace tessera::hugging_face
