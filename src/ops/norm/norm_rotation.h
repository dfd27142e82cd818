#pragma once

#include "ops/norm/norm_kernels.h"
#include "program/operation.h"

namespace tessera {

/// Returns the rotation of a norm or of its gradient: of the rows of its first input [tokens, heads
/// · head_dim] by its last one, a table [tokens, channels]. A `head_dim` of 0 means no rotation.
template <typename T>
NormRotation<T> norm_rotation(const Execution& execution, int64_t head_dim) {
  if (head_dim == 0) return {};
  const Shape& x = execution.inputs.front().shape();
  const Tensor& table = execution.inputs.back();
  return {.table = table.pointer<Compute<T>>(),
          .tokens = x[0],
          .heads = x[1] / head_dim,
          .head_dim = head_dim,
          .channels = table.shape()[1]};
}

}  // namespace tessera
