#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// The rows that a rank has of a table. Ids count the rows of the whole.
struct TableRows {
  int64_t first;
  int64_t count;
};

/// output[t] = table[ids[t] - rows.first], row by row; zeros where the table lacks that row.
template <typename T>
struct EmbeddingForward {
  int64_t tokens;
  int64_t hidden;
  TableRows rows;
  const T* table;      // [rows, hidden]
  const int32_t* ids;  // [tokens]
  T* output;           // [tokens, hidden]
};

/// table[ids[t] - rows.first] += gradient[t], row by row, where the table has that row. The rows of
/// a token are added in the order of their positions, as the processor does.
template <typename T>
struct EmbeddingBackward {
  int64_t tokens;
  int64_t hidden;
  TableRows rows;
  const int32_t* ids;  // [tokens]
  const T* gradient;   // [tokens, hidden]
  int32_t* order;      // [tokens]: memory for the positions ordered by their token
  Compute<T>* table;   // [rows, hidden]
};

/// The kernels of devices, for T = float and BFloat16. They put their work into the stream. All
/// arrays begin on 64 bytes.
template <typename Vendor, typename T>
void embedding_device(const EmbeddingForward<T>& embedding, Stream& stream);
template <typename Vendor, typename T>
void embedding_gradient_device(const EmbeddingBackward<T>& embedding, Stream& stream);

}  // namespace tessera
