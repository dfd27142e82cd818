#pragma once

#include <optional>
#include <string>

#include "data/sources/megatron.h"
#include "data/sources/stored_tokens.h"

namespace tessera {

/// Opens files of token ids, one after another in the order of their names: `pattern` is a file or
/// a glob. A file that begins as .npy files do is one, with one dimension of uint16, uint32, int32
/// or int64; any other is nothing but ids, as OLMo's files are in spite of their names ending in
/// .npy, and `type` must say of which type. A file's end ends a document. Throws Error naming the
/// file when it is empty, of another type than `type` says, or not a whole number of ids.
StoredTokens open_token_files(const std::string& pattern, std::optional<TokenType> type,
                              DocumentEnds ends, const TokenRange& range);

}  // namespace tessera
