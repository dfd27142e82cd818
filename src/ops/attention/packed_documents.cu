#include "ops/attention/packed_documents.h"

#include "ops/attention/attention_warp.h"

namespace tessera {
namespace {

// cuDNN takes packed sequences, and gives a number for each row in another order than the kernels
// here have. So this file has both kernels. A group is the documents that begin in one stretch of a
// sequence (see PackedDocuments).

constexpr int kThreads = 256;

/// Fills the arrays of PackedDocuments, with a block for each group.
__global__ void pack_documents(PackedDocuments documents) {
  const auto group = static_cast<int>(blockIdx.x);
  const auto thread = static_cast<int>(threadIdx.x);
  const int stretch_index = group % documents.groups_per_sequence;
  const int first_token = group / documents.groups_per_sequence * documents.sequence;
  const int32_t* const starts = documents.document_starts + first_token;
  const int stretch_begin = stretch_index * documents.stretch;
  const int stretch_end = stretch_begin + documents.stretch;
  // Returns the start of the first document that begins at a position or after it. A token's start
  // is at most its own position, and equals it at the first token of a document.
  const auto first_start_from = [&](int position) {
    return first_not_below(starts, position, documents.sequence, position);
  };
  const int begin = first_start_from(stretch_begin);
  const int end =
      stretch_end < documents.sequence ? first_start_from(stretch_end) : documents.sequence;
  const int length = end - begin;
  // One thread writes all widths, in a loop of constant length, which is unrolled. With an index
  // that varies by thread, the compiler would copy the parameters to the stack.
  if (thread == 0) {
    documents.lengths[group] = length;
    for (int i = 0; i < PackedDocuments::kWidths; ++i) {
      const int width = documents.widths[i];
      int32_t* const offsets = documents.offsets[i];
      offsets[group] = (first_token + begin) * width;
      if (group + 1 == documents.groups) offsets[group + 1] = (first_token + end) * width;
    }
  }
  int32_t* const result = documents.starts + static_cast<int64_t>(group) * documents.sequence;
  for (int query = thread; query < documents.sequence; query += kThreads) {
    result[query] = query < length ? starts[begin + query] - begin : 0;
  }
}

/// Reorders numbers between the orders [sequences, heads, sequence] and [tokens, heads], with a
/// thread for each number, in the second order.
__global__ void reorder_rows(RowNumbers numbers, bool to_tokens) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= static_cast<int64_t>(numbers.sequences) * numbers.heads * numbers.sequence) return;
  const int64_t token = index / numbers.heads, head = index % numbers.heads;
  const int64_t sequence = token / numbers.sequence;
  const int64_t row =
      (sequence * numbers.heads + head) * numbers.sequence + token % numbers.sequence;
  numbers.to[to_tokens ? index : row] = numbers.from[to_tokens ? row : index];
}

}  // namespace

template <typename Vendor>
void pack_documents_device(const PackedDocuments& documents, Stream& stream) {
  launch(pack_documents, {.blocks = documents.groups, .threads = kThreads}, stream, documents);
}

template <typename Vendor>
void reorder_rows_device(const RowNumbers& numbers, bool to_tokens, Stream& stream) {
  const int64_t count = static_cast<int64_t>(numbers.sequences) * numbers.heads * numbers.sequence;
  launch(reorder_rows, {.blocks = (count + kThreads - 1) / kThreads, .threads = kThreads}, stream,
         numbers, to_tokens);
}

template void pack_documents_device<ThisVendor>(const PackedDocuments&, Stream&);
template void reorder_rows_device<ThisVendor>(const RowNumbers&, bool, Stream&);

}  // namespace tessera
