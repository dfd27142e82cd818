#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The rows of a table that a rank has. Ids are rows of the whole.
struct TableRows {
  int64_t first;
  int64_t count;
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

/// The arguments of table[ids[t] - rows.first] += gradient[t], row by row, where the table has that
/// row. The rows of an id are added in the order of their positions, as on the processor.
template <typename T>
struct EmbeddingBackward {
  int64_t tokens;
  int64_t hidden;
  TableRows rows;
  const int32_t* ids;  // [tokens]
  const T* gradient;   // [tokens, hidden]
  int32_t* order;      // [tokens]: memory for the positions sorted by id
  Compute<T>* table;   // [rows, hidden]
};

/// Enqueues the kernels on a device's stream, for T = float and BFloat16. All arrays are aligned to
/// 64 bytes.
template <typename Vendor, typename T>
void embedding_device(const EmbeddingForward<T>& embedding, Stream& stream);
template <typename Vendor, typename T>
void embedding_gradient_device(const EmbeddingBackward<T>& embedding, Stream& stream);

}  // namespace tessera
