#pragma once

#include "base/file.h"
#include "data/sources/stored_tokens.h"

namespace tessera {

/// How a source's documents end.
enum class DocumentEnds {
  /// A document whose last token is no end-of-document token gets one. Every document's last token
  /// is looked at when the source is opened.
  add,
  /// They are taken to end with one, and the stream is the files as they are. Some documents are
  /// looked at when the source is opened; one without is an error.
  present,
};

/// The two files of a Megatron-LM indexed dataset, PREFIX.idx and PREFIX.bin; `path` is the prefix
/// or either of them.
struct MegatronPaths {
  fs::path index;
  fs::path tokens;
};
MegatronPaths megatron_paths(const fs::path& path);

/// Opens a Megatron-LM indexed dataset: its documents in the order of the index, those without
/// tokens left out. The index is, little-endian,
///
///   "MMIDIDX\0\0", u64 version = 1, u8 element type (4: int32, 5: int64, 8: uint16),
///   u64 sequences, u64 document boundaries = documents + 1,
///   i32 [sequences] lengths in tokens, i64 [sequences] places in PREFIX.bin in bytes,
///   i64 [documents + 1] the sequence that each document begins with, and the number of sequences
///
/// and everything in it is checked: sequences follow each other without gap or overlap and fill
/// PREFIX.bin exactly; boundaries grow from 0 to the number of sequences. Throws Error naming the
/// file and what in it is wrong. Memory: as StoredTokens.
StoredTokens open_megatron(const fs::path& path, DocumentEnds ends, const TokenRange& range);

}  // namespace tessera
