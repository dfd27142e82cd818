#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The rows that a rank has, as indices in the whole table. Ids are such indices too.
struct TableRows {
  int64_t first;
  int64_t count;

  /// Returns the row of the rank's table for an id, or -1 if the table does not have it. It is
  /// constexpr so that kernels of devices can call it.
  constexpr int64_t row_of(int32_t id) const {
    const int64_t row = id - first;
    return row >= 0 && row < count ? row : -1;
  }
};

/// The arguments of output[t] = table[ids[t] - rows.first], row by row. The output is zeros where
/// the table lacks that row.
template <typename T>
struct EmbeddingForward {
  int64_t tokens;
  int64_t hidden;
  TableRows rows;
  const T* table;      // [rows, hidden]
  const int32_t* ids;  // [tokens]
  T* output;           // [tokens, hidden]
};

/// The arguments of table[ids[t] - rows.first] += gradient[t], row by row, for ids that the table
/// has. The rows of an id are added in the order of t, as on the processor.
template <typename T>
struct EmbeddingBackward {
  int64_t tokens;
  int64_t hidden;
  TableRows rows;
  const int32_t* ids;  // [tokens]
  const T* gradient;   // [tokens, hidden]
  int32_t* order;      // [tokens]: scratch for the values of t, sorted by id
  Compute<T>* table;   // [rows, hidden]
};

/// Enqueues the kernels on a device's stream, for T = float and BFloat16. All arrays are aligned to
/// 64 bytes.
template <typename Vendor, typename T>
void embedding_device(const EmbeddingForward<T>& embedding, Stream& stream);
template <typename Vendor, typename T>
void embedding_gradient_device(const EmbeddingBackward<T>& embedding, Stream& stream);

}  // namespace tessera
