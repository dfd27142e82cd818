#pragma once

#include <cstdlib>
#include <string>

namespace tessera::testing {

/// Returns how often a test does what it does at random: `few` times, or as often as TESSERA_ROUNDS
/// in the environment says.
inline int rounds(int few) {
  const char* const wanted = std::getenv("TESSERA_ROUNDS");
  return wanted == nullptr ? few : std::stoi(wanted);
}

}  // namespace tessera::testing
