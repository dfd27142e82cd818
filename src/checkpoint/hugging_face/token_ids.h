#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/hugging_face/architecture.h"
#include "checkpoint/hugging_face/config_fields.h"

namespace tessera::hugging_face {

/// The keys of special tokens' ids, which an export keeps, in the order of Architecture::tokens.
inline constexpr std::array<const char*, 3> kTokenIdKeys{"bos_token_id", "eos_token_id",
                                                         "pad_token_id"};

/// Checks the ids of the special tokens. Each must be absent (null, or -1 in the first Llama's
/// files), a token of the vocabulary, or a list of such tokens. Otherwise throws Error.
void check_token_ids(ConfigFields& fields, int64_t vocabulary_size);

/// Returns the id that the library uses if config.json leaves out `key`, which is one of
/// kTokenIdKeys. Returns -1 if the architecture has none, or if the vocabulary has no such token.
int64_t default_token_id(const Architecture& architecture, std::string_view key,
                         int64_t vocabulary_size);

/// Returns the tokens that end a generated text. `text` is a config.json or generation_config.json;
/// its eos_token_id is a number or a list of numbers. Returns none if the key is null or -1. If the
/// key is left out, returns `default_token`, or none if that is -1. Throws Error that names
/// `origin` when the value is anything else.
std::vector<int32_t> read_end_tokens(std::string_view text, const std::string& origin,
                                     int64_t default_token = -1);

}  // namespace tessera::hugging_face
