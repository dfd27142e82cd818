#pragma once

#include <cstdint>

#include "ops/cca/token_order.h"
#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The rows of joined[t] = (current[t], delayed[t - 1]), where delayed[t - 1] is zero at a
/// document's start. A const element type marks the rows that are read.
template <typename Part, typename Joined>
struct DelayedRows {
  TokenOrder order;
  int64_t tokens;
  int64_t current_width;
  int64_t delayed_width;
  Part* current;           // [tokens, current_width]
  Part* delayed;           // [tokens, delayed_width]
  Joined* joined;          // [tokens, current_width + delayed_width]
  const Part* row_before;  // [delayed_width]: before token 0 of a sequence that continues, or null
};
/// The arguments that join rows.
template <typename T>
using RowsToJoin = DelayedRows<const T, T>;
/// The arguments that separate gradients: `delayed` is zero for the last token of a document.
template <typename T>
using RowsToSeparate = DelayedRows<T, const T>;

// These functions enqueue the kernels on a device's stream, for T = float and BFloat16.
template <typename Vendor, typename T>
void join_delayed_device(const RowsToJoin<T>& delay, Stream& stream);
template <typename Vendor, typename T>
void join_delayed_gradient_device(const RowsToSeparate<T>& delay, Stream& stream);

}  // namespace tessera
