#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/file.h"
#include "data/bpe/bpe_description.h"

namespace tessera {

inline constexpr const char* kTokenizerConfigName = "tokenizer_config.json";

/// Returns the id of the added or vocabulary token with this content, or nothing if there is none.
std::optional<int32_t> token_id(const BpeDescription& description, const std::string& content);

/// Returns the content of the token that ends a document. A tokenizer.json does not name it. The
/// first of these that names one decides: eos_token in tokenizer_config.json and in
/// special_tokens_map.json, eos_token_id in generation_config.json and in config.json (the first of
/// a list), all in `folder` beside the tokenizer; then the only one of <|endoftext|>,
/// <|end_of_text|> and </s> that is a token. Throws Error naming `origin` when none of these
/// decides, when one names a token that does not exist, and when a file is damaged.
std::string find_end_of_document(const fs::path& folder, const BpeDescription& description,
                                 const std::string& origin);

/// Returns `config`, the text of a tokenizer_config.json or "", with `token` as its eos_token.
/// Returns it unchanged if that is its eos_token already. `origin` names the file in errors.
std::string with_end_of_document(const std::string& config, const std::string& token,
                                 const std::string& origin);

}  // namespace tessera
