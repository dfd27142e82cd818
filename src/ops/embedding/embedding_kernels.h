#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace tessera {

class Stream;

/// output[t] = table[ids[t]], row by row.
template <typename T>
struct EmbeddingForward {
  int64_t tokens;
  int64_t hidden;
  const T* table;      // [vocabulary, hidden]
  const int32_t* ids;  // [tokens], within the vocabulary
  T* output;           // [tokens, hidden]
};

/// table[ids[t]] += gradient[t], row by row. The rows of a token are added in the order of their
/// positions, as the processor does.
template <typename T>
struct EmbeddingBackward {
  int64_t tokens;
  int64_t hidden;
  const int32_t* ids;  // [tokens], within the vocabulary
  const T* gradient;   // [tokens, hidden]
  int32_t* order;      // [tokens]: memory for the positions ordered by their token
  Compute<T>* table;   // [vocabulary, hidden]
};

/// The kernels of devices, for T = float and BFloat16. They put their work into the stream. All
/// arrays begin on 64 bytes.
template <typename Vendor, typename T>
void embedding_device(const EmbeddingForward<T>& embedding, Stream& stream);
template <typename Vendor, typename T>
void embedding_gradient_device(const EmbeddingBackward<T>& embedding, Stream& stream);

}  // namespace tessera
