#pragma once

#include <algorithm>

#include "ops/attention/attention_kernels.h"
#include "ops/attention/attention_shape.h"

namespace tessera {

/// Returns the sizes of an attention for kernels of devices. Throws InternalError if they do not
/// fit.
inline AttentionSizes kernel_sizes(const AttentionShape& shape) {
  const int64_t rows = shape.sequences * shape.heads * std::max(shape.sequence, shape.keys);
  TESSERA_CHECK(rows <= kMostRows && shape.head_dim <= kMostHeadDim,
                "attention on a device with {} rows of {} channels", rows, shape.head_dim);
  return {.sequences = static_cast<int>(shape.sequences),
          .sequence = static_cast<int>(shape.sequence),
          .keys = static_cast<int>(shape.keys),
          .heads = static_cast<int>(shape.heads),
          .kv_heads = static_cast<int>(shape.kv_heads),
          .head_dim = static_cast<int>(shape.head_dim),
          .scale = static_cast<float>(shape.scale)};
}

}  // namespace tessera
