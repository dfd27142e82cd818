#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/hugging_face/architecture.h"

namespace tessera::hugging_face {

/// The keys of special tokens' ids, which an export hands on.
inline constexpr std::array<const char*, 3> kTokenIds{"bos_token_id", "eos_token_id",
                                                      "pad_token_id"};

/// What a config.json of transformers says, in our terms.
struct ReadConfig {
  const Architecture* architecture = nullptr;
  ModelConfig model;                  ///< validated
  std::vector<std::string> warnings;  ///< sentences on keys that are not known or have no effect
};

/// Reads the text of a config.json; `origin` is what errors call it. Keys are of three kinds: those
/// that the model is made of, those that change the mathematics in ways that Tessera does not have
/// (they must have the value that changes nothing), and those without effect on it. Throws Error
/// naming the key, its value and what is supported: an unknown architecture, a key of the second
/// kind, a value out of range, keys that contradict each other.
ReadConfig read_config(std::string_view text, const std::string& origin);

}  // namespace tessera::hugging_face
