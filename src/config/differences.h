#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace tessera {

/// A key whose value differs between two configurations.
struct ConfigDifference {
  std::string key;  ///< "model.layers"
  // The values as TOML.
  std::string first;
  std::string second;
};

/// Returns the keys whose values differ, in the order of the sections. If a list of tables has two
/// different lengths, one difference gives the two lengths. The tables that both have are compared
/// too.
std::vector<ConfigDifference> differences(const RunConfig& first, const RunConfig& second);

}  // namespace tessera
