#pragma once

#include <string_view>

#include "base/error.h"

namespace tessera {

/// Runs an action that reads the file or folder that a key names, and returns its result. If the
/// action throws Error, throws it again with the key and the value before its message.
template <typename Action>
auto read_for_key(std::string_view key, std::string_view value, Action&& action) {
  try {
    return action();
  } catch (const Error& error) {
    throw Error("{} = \"{}\": {}", key, value, error.what());
  }
}

}  // namespace tessera
