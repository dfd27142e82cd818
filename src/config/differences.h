#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace tessera {

/// A key whose value differs between two configurations.
struct ConfigDifference {
  std::string key;  ///< "model.layers"
  std::string first;
  std::string second;  ///< both as TOML
};

std::vector<ConfigDifference> differences(const RunConfig& first, const RunConfig& second);

}  // namespace tessera
