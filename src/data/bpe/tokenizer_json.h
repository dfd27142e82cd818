#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "data/bpe/bpe_description.h"

namespace tessera {

/// Parses a tokenizer.json strictly. Throws Error naming `origin` when it is none.
nlohmann::json parse_tokenizer_json(std::string_view text, const std::string& origin);

/// Whether a tokenizer.json of the `tokenizers` library spells bytes as symbols. Others need
/// another algorithm.
bool is_byte_level(const nlohmann::json& tokenizer);

/// Reads a byte-level byte-pair encoding. What bears on tokens and is not supported, and every key
/// that is not known, throws Error naming `origin`, the key and what is supported.
///
/// Read and without effect are what the library does after or beside tokenization: post-processors
/// (they add control tokens, which preparation does itself), truncation and padding (a batch's
/// affair), the unknown token (all bytes are tokens, so nothing is unknown).
BpeDescription read_tokenizer_json(const nlohmann::json& tokenizer, const std::string& origin);

}  // namespace tessera
