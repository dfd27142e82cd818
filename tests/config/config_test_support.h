#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/load_config.h"
#include "support/error_of.h"
#include "support/temporary_folder.h"

namespace tessera {

/// The configuration of a text that is called "test.toml".
inline RunConfig parse(std::string_view text, const std::vector<std::string>& overrides = {}) {
  return parse_config(text, "test.toml", overrides);
}

/// The message of the Error that reading this text throws.
inline std::string message_of(std::string_view text,
                              const std::vector<std::string>& overrides = {}) {
  return error_of([&] { parse(text, overrides); });
}

}  // namespace tessera
