#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "ops/attention/scratch.h"

namespace tessera {

class Stream;

/// The groups into which the documents of sequences are packed. Attention computes only the pairs
/// of queries and keys within a group.
///
/// A sequence is cut into stretches of `stretch` tokens, without regard to documents. Each stretch
/// has one group: the documents that begin within the stretch. So the number of groups does not
/// depend on the documents, and the host need not wait for a number from the device. A group in
/// whose stretch no document begins is empty. A mask separates the documents of a group.
///
/// Long stretches join more documents. Short stretches make more groups, and for each group a
/// library starts blocks for all tiles of a sequence, most of which find nothing to do. So a
/// stretch is at least four tiles of 128 tokens, and a sequence has at most 16 stretches.
struct DocumentGroups {
  DocumentGroups(int64_t sequence_count, int64_t tokens_of_sequence)
      : sequences(sequence_count),
        sequence(tokens_of_sequence),
        stretch(std::max(kLeastStretch, ceil_div(sequence, kMostGroups))) {}

  static constexpr int64_t kLeastStretch = 512;
  static constexpr int64_t kMostGroups = 16;  // of one sequence

  int64_t sequences;
  int64_t sequence;  // tokens of one sequence
  int64_t stretch;   // tokens

  int64_t per_sequence() const { return ceil_div(sequence, stretch); }
  int64_t count() const { return sequences * per_sequence(); }
};

/// The lengths and offsets of groups of documents, for a library that takes cumulative lengths. All
/// memory is the device's.
struct PackedDocuments {
  /// The number of widths. The library counts offsets in elements, and the elements of a token are
  /// a row of queries, a row of keys, or one number per head.
  static constexpr int kWidths = 3;

  int groups;                      // of all sequences
  int groups_per_sequence;         // groups of one sequence
  int sequence;                    // tokens of one sequence
  int stretch;                     // tokens
  int widths[kWidths];             // elements of a token
  const int32_t* document_starts;  // [sequences · sequence]: positions within the sequence
  int32_t* lengths;                // [groups]: tokens
  int32_t* offsets[kWidths];       // [groups + 1]: tokens before the group, times a width
  /// [groups, sequence]: for each query of a group, the start of its document within the group.
  /// Entries after the group's end are 0.
  int32_t* starts;
};

/// The memory of the arrays of PackedDocuments. With a null base it only counts bytes.
struct PackedArrays {
  explicit PackedArrays(const DocumentGroups& groups, std::byte* base = nullptr) {
    Scratch scratch(base);
    lengths = scratch.array<int32_t>(groups.count());
    for (int32_t*& offset : offsets) offset = scratch.array<int32_t>(groups.count() + 1);
    starts = scratch.array<int32_t>(groups.count() * groups.sequence);
    bytes = scratch.bytes();
  }

  int32_t* lengths;
  std::array<int32_t*, PackedDocuments::kWidths> offsets;
  int32_t* starts;
  int64_t bytes;
};

/// The arguments of a reordering of f32 numbers, one for each query of each head, between
/// [sequences · heads, sequence] and [tokens, heads].
struct RowNumbers {
  int sequences;
  int heads;
  int sequence;
  const float* from;
  float* to;
};

/// Enqueues the kernel that finds lengths, offsets and starts of groups. Document starts are not
/// checked.
template <typename Vendor>
void pack_documents_device(const PackedDocuments& documents, Stream& stream);
/// Enqueues a reordering to [tokens, heads], or from there to [sequences · heads, sequence].
template <typename Vendor>
void reorder_rows_device(const RowNumbers& numbers, bool to_tokens, Stream& stream);

}  // namespace tessera
