#pragma once

#include <algorithm>
#include <cstdint>

#include "device/stream.h"
#include "ops/support.h"

namespace tessera {

/// Updates a state that holds the rows of the newest tokens of a sequence, the latest last. `rows`,
/// [tokens, width], are those of the tokens that follow. If they are fewer than the state's rows,
/// the state's last rows move up first.
inline void keep_last_rows(const Execution& execution, const Tensor& rows, const Tensor& state) {
  const int64_t kept = state.shape()[0];
  const int64_t row_bytes = state.bytes() / kept;
  const auto copy = [&](const Tensor& from, int64_t from_row, int64_t to_row) {
    const auto* const source = static_cast<const std::byte*>(from.address()) + from_row * row_bytes;
    auto* const target = static_cast<std::byte*>(state.address()) + to_row * row_bytes;
    if (execution.stream != nullptr) {
      execution.stream->copy(target, source, row_bytes);
    } else {
      std::copy_n(source, row_bytes, target);
    }
  };
  const int64_t tokens = rows.shape()[0];
  for (int64_t row = 0; row < kept; ++row) {
    const int64_t token = tokens - kept + row;
    token < 0 ? copy(state, row + tokens, row) : copy(rows, token, row);
  }
}

}  // namespace tessera
