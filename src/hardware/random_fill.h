#pragma once

#include <string_view>

#include "tensor/tensor.h"

namespace tessera {

/// Fills a floating tensor with normal numbers of this deviation, for measurements: zeros would
/// flatter the machine, for they draw less power, which lets it clock higher. About a million
/// distinct numbers, drawn by name, repeat where the tensor is larger, so that gigabytes are filled
/// at the speed of memory.
void fill_normal(const Tensor& tensor, std::string_view name, double deviation, int threads);

}  // namespace tessera
