#pragma once

#include "ops/norm/norm_kernels.h"
#include "tensor/tensor.h"

namespace tessera {

/// The rotation of the rows of x [tokens, heads · head_dim] by a table [tokens, channels].
template <typename T>
NormRotation<T> norm_rotation(const Shape& x, const Tensor& table, int64_t head_dim) {
  return {.table = table.pointer<Compute<T>>(),
          .tokens = x[0],
          .heads = x[1] / head_dim,
          .head_dim = head_dim,
          .channels = table.shape()[1]};
}

}  // namespace tessera
