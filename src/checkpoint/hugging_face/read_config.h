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

/// Returns the content of a config.json with that text; `origin` names the file in errors. A known
/// key describes the model, or has no effect, or changes the mathematics in a way that Tessera does
/// not support. A key of the last kind must have the value that changes nothing. Throws Error if
/// that key has another value, and for an unknown architecture, a value out of range, keys that
/// contradict each other, and unknown keys that are not in `accepted_keys`. The error names the
/// key, its value and what is supported.
ReadConfig read_config(std::string_view text, const std::string& origin,
                       std::span<const std::string> accepted_keys = {});

}  // namespace tessera::hugging_face
