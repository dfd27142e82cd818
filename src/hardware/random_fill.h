#pragma once

#include <string_view>

#include "tensor/tensor.h"

namespace tessera {

/// Fills a floating tensor with normal numbers of this deviation, for measurements. Zeros would
/// measure too well: they draw less power, which lets a machine clock higher. `name` is the key of
/// the random numbers. In a large tensor about a million numbers repeat, so gigabytes are filled at
/// the speed of memory.
void fill_normal(const Tensor& tensor, std::string_view name, double deviation, int threads);

}  // namespace tessera
