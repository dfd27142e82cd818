#pragma once

#include <optional>
#include <string>

#include "base/file.h"
#include "data/sources/stored_tokens.h"

namespace tessera {

// Two kinds of files of token ids can be opened as StoredTokens: plain ones and the datasets of
// Megatron-LM. `ends` says what to do where a document lacks an end-of-document token.

/// Opens files of token ids. `pattern` is a file, a folder or a glob. The files follow one another
/// in the order of their names. A file that begins with the .npy magic is read as .npy, with one
/// dimension of uint16, uint32, int32 or int64. Any other file consists of ids only, and `type`
/// must give their type. OLMo's files are of this kind, although their names end in .npy. With
/// DocumentEnds::add, the end of a file ends a document. Throws Error naming the file when it is
/// empty, when its type is not `type`, and when it is not a whole number of ids.
StoredTokens open_token_files(const std::string& pattern, std::optional<TokenType> type,
                              DocumentEnds ends, const TokenIdRange& ids);

/// The two files of a Megatron-LM indexed dataset. `path` is their prefix or either file.
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
/// PREFIX.bin exactly, and boundaries begin at 0, never fall and end at the number of sequences.
/// Throws Error naming the file and what is wrong in it. Needs no more memory than StoredTokens.
StoredTokens open_megatron(const fs::path& path, DocumentEnds ends, const TokenIdRange& ids);

}  // namespace tessera
