#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/hugging_face/architecture.h"

namespace tessera::hugging_face {

/// What a config.json of transformers says, in our terms.
struct ReadConfig {
  const Architecture* architecture = nullptr;
  ModelConfig model;  ///< validated
  /// Sentences on what makes transformers train the model otherwise, and on accepted keys.
  std::vector<std::string> notes;
};

/// Reads the text of a config.json; `origin` is what errors call it. Keys are of three kinds: those
/// that the model is made of, those that change the mathematics in ways that Tessera does not have
/// (they must have the value that changes nothing), and those without effect on it. Throws Error
/// naming the key, its value and what is supported: an unknown architecture, a key of the second
/// kind, a value out of range, keys that contradict each other, and every key of none of the kinds
/// that is not among `accepted_keys`.
ReadConfig read_config(std::string_view text, const std::string& origin,
                       std::span<const std::string> accepted_keys = {});

}  // namespace tessera::hugging_face
