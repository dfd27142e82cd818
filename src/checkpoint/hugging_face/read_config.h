#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/hugging_face/architecture.h"

namespace tessera::hugging_face {

/// The content of a transformers config.json, as Tessera's configuration.
struct ReadConfig {
  const Architecture* architecture = nullptr;
  ModelConfig model;  ///< validated
  /// Sentences on settings with which transformers trains the model differently, and on accepted
  /// keys.
  std::vector<std::string> notes;
};

/// Returns the content of a config.json with that text; `origin` names it in errors. There are
/// three kinds of keys: keys that describe the model, keys that change the mathematics in ways that
/// Tessera does not support (they must have the value that changes nothing), and keys without
/// effect. Throws Error that names the key, its value and what is supported: for an unknown
/// architecture, a key of the second kind, a value out of range, keys that contradict each other,
/// and every unknown key that is not in `accepted_keys`.
ReadConfig read_config(std::string_view text, const std::string& origin,
                       std::span<const std::string> accepted_keys = {});

}  // namespace tessera::hugging_face
