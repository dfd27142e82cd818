#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/file.h"
#include "data/bpe/bpe_description.h"

namespace tessera {

inline constexpr const char* kTokenizerConfigName = "tokenizer_config.json";

/// The id of the token that the added tokens or the vocabulary spell so; nothing when none does.
std::optional<int32_t> token_id(const BpeDescription& description, const std::string& content);

/// The content of the token that ends a document. A tokenizer.json does not say which it is. Of
/// these, the first that says so decides: eos_token in tokenizer_config.json and in
/// special_tokens_map.json, eos_token_id in generation_config.json and in config.json (of a list
/// the first), all beside the tokenizer in `folder`; a token <|endoftext|>, <|end_of_text|> or
/// </s>. Throws Error naming `origin` when none does, when one names a token that there is not, and
/// when a file is damaged.
std::string find_end_of_document(const fs::path& folder, const BpeDescription& description,
                                 const std::string& origin);

/// `config`, the text of a tokenizer_config.json or "" where there is none, with `token` as its
/// eos_token: itself when it says so already. `origin` names it in errors.
std::string with_end_of_document(const std::string& config, const std::string& token,
                                 const std::string& origin);

}  // namespace tessera
