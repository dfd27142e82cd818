#pragma once

#include <optional>
#include <string>

#include "data/sources/megatron.h"
#include "data/sources/stored_tokens.h"

namespace tessera {

/// Opens files of token ids. `pattern` is a file or a glob. The files follow one another in the
/// order of their names. A file that begins with the .npy magic is read as .npy, with one dimension
/// of uint16, uint32, int32 or int64. Any other file consists of ids only, and `type` must give
/// their type. OLMo's files are of this kind, although their names end in .npy. The end of a file
/// ends a document. Throws Error naming the file when it is empty, when its type is not `type`, and
/// when it is not a whole number of ids.
StoredTokens open_token_files(const std::string& pattern, std::optional<TokenType> type,
                              DocumentEnds ends, const TokenRange& range);

}  // namespace tessera
