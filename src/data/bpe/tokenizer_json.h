#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "data/bpe/bpe_description.h"

namespace tessera {

/// Parses a tokenizer.json strictly. Throws Error naming `origin` when it is not valid.
nlohmann::json parse_tokenizer_json(std::string_view text, const std::string& origin);

/// Returns whether a tokenizer.json of the `tokenizers` library spells bytes as symbols. Others are
/// conversions of SentencePiece models, or need a different algorithm.
bool is_byte_level(const nlohmann::json& tokenizer);

/// Reads a byte-level byte-pair encoding, or one with byte fallback that writes spaces as U+2581,
/// as Gemma has it. Throws Error on a setting that affects tokens and is not supported, and on
/// every unknown key. The error names `origin`, the key and what is supported.
///
/// Settings of steps after or beside tokenization are read but have no effect: post-processors
/// (they add control tokens, which `prepare` adds itself), truncation and padding (which concern
/// batches), the unknown token (all bytes are tokens, so nothing is unknown).
BpeDescription read_tokenizer_json(const nlohmann::json& tokenizer, const std::string& origin);

}  // namespace tessera
