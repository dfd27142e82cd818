#include "ops/attention/packed_documents.h"

#include "device/kernel.h"

namespace tessera {
namespace {

constexpr int kThreads = 256;

/// Returns the position of the first document of a sequence that begins at `position` or after it,
/// or `sequence` if there is none.
__device__ inline int first_start(const int32_t* starts, int sequence, int position) {
  int begin = position, end = sequence;
  while (begin < end) {
    const int middle = begin + (end - begin) / 2;
    if (starts[middle] < position) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

/// Fills the arrays of PackedDocuments, with a block for each group.
__global__ void pack_documents(PackedDocuments documents) {
  const auto group = static_cast<int>(blockIdx.x);
  const auto thread = static_cast<int>(threadIdx.x);
  const int stretch_index = group % documents.groups_per_sequence;
  const int first_token = group / documents.groups_per_sequence * documents.sequence;
  const int32_t* const starts = documents.document_starts + first_token;
  const int stretch_begin = stretch_index * documents.stretch;
  const int stretch_end = stretch_begin + documents.stretch;
  const int begin = first_start(starts, documents.sequence, stretch_begin);
  const int end = stretch_end < documents.sequence
                      ? first_start(starts, documents.sequence, stretch_end)
                      : documents.sequence;
  const int length = end - begin;
  // One thread, and an unrolled loop: a variable index would copy the parameters to the stack.
  if (thread == 0) {
    documents.lengths[group] = length;
    for (int which = 0; which < PackedDocuments::kWidths; ++which) {
      const int width = documents.widths[which];
      int32_t* const offsets = documents.offsets[which];
      offsets[group] = (first_token + begin) * width;
      if (group + 1 == documents.groups) offsets[group + 1] = (first_token + end) * width;
    }
  }
  int32_t* const result = documents.starts + static_cast<int64_t>(group) * documents.sequence;
  for (int query = thread; query < documents.sequence; query += kThreads) {
    result[query] = query < length ? starts[begin + query] - begin : 0;
  }
}

/// Returns the index in [sequences · heads, sequence] of the number at `index` in [tokens, heads].
__device__ inline int64_t row_of(const RowNumbers& numbers, int64_t index) {
  const int64_t token = index / numbers.heads, head = index % numbers.heads;
  const int64_t sequence = token / numbers.sequence;
  return (sequence * numbers.heads + head) * numbers.sequence + token % numbers.sequence;
}

/// Reorders numbers, with a thread for each, in the order [tokens, heads].
template <bool to_tokens>
__global__ void reorder_rows(RowNumbers numbers) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= static_cast<int64_t>(numbers.sequences) * numbers.heads * numbers.sequence) return;
  const int64_t row = row_of(numbers, index);
  if constexpr (to_tokens) {
    numbers.to[index] = numbers.from[row];
  } else {
    numbers.to[row] = numbers.from[index];
  }
}

template <bool to_tokens>
void reorder(const RowNumbers& numbers, Stream& stream) {
  const int64_t count = static_cast<int64_t>(numbers.sequences) * numbers.heads * numbers.sequence;
  launch(reorder_rows<to_tokens>,
         {.blocks = (count + kThreads - 1) / kThreads, .threads = kThreads},
         stream, numbers);
}

}  // namespace

template <typename Vendor>
void pack_documents_device(const PackedDocuments& documents, Stream& stream) {
  launch(pack_documents, {.blocks = documents.groups, .threads = kThreads}, stream, documents);
}

template <typename Vendor>
void rows_to_tokens_device(const RowNumbers& numbers, Stream& stream) {
  reorder<true>(numbers, stream);
}

template <typename Vendor>
void rows_from_tokens_device(const RowNumbers& numbers, Stream& stream) {
  reorder<false>(numbers, stream);
}

template void pack_documents_device<ThisVendor>(const PackedDocuments&, Stream&);
template void rows_to_tokens_device<ThisVendor>(const RowNumbers&, Stream&);
template void rows_from_tokens_device<ThisVendor>(const RowNumbers&, Stream&);

}  // namespace tessera
