#pragma once

#include "base/file.h"
#include "data/sources/stored_tokens.h"

namespace tessera {

/// The two files of a Megatron-LM indexed dataset, PREFIX.idx and PREFIX.bin. `path` is the prefix
/// or either file.
struct MegatronPaths {
  fs::path index;
  fs::path tokens;
};
MegatronPaths megatron_paths(const fs::path& path);

/// Opens a Megatron-LM indexed dataset. Its documents come in the order of the index; documents
/// without tokens are left out. The index is, little-endian,
///
///   "MMIDIDX\0\0", u64 version = 1, u8 element type (4: int32, 5: int64, 8: uint16),
///   u64 sequences, u64 document boundaries = documents + 1,
///   i32 [sequences] lengths in tokens, i64 [sequences] offsets in PREFIX.bin in bytes,
///   i64 [documents + 1] the sequence that each document begins with, and the number of sequences
///
/// The whole index is checked: sequences follow each other without gap or overlap and fill
/// PREFIX.bin exactly, and boundaries grow from 0 to the number of sequences. Throws Error naming
/// the file and what is wrong in it. Memory: that of StoredTokens.
StoredTokens open_megatron(const fs::path& path, DocumentEnds ends, const TokenRange& range);

}  // namespace tessera
