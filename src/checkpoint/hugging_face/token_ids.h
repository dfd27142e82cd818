#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/hugging_face/config_fields.h"

namespace tessera::hugging_face {

/// The keys of special tokens' ids, which an export hands on.
inline constexpr std::array<const char*, 3> kTokenIds{"bos_token_id", "eos_token_id",
                                                      "pad_token_id"};

/// Throws Error when one of them is neither nothing (null, or -1 in the first Llama's files) nor a
/// token of the vocabulary nor a list of such.
void check_token_ids(ConfigFields& fields, int64_t vocabulary_size);

/// The tokens of which each ends a generated text: eos_token_id of a config.json or
/// generation_config.json, whose text this is, a number or a list of them; nothing where the file
/// does not say. Throws Error naming `origin` when it is neither.
std::vector<int32_t> read_end_tokens(std::string_view text, const std::string& origin);

}  // namespace tessera::hugging_face
