#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace tessera {

/// A key whose value differs between two configurations.
struct ConfigDifference {
  std::string key;     ///< "model.layers"
  std::string first;   ///< the value in the first configuration, as TOML
  std::string second;  ///< the value in the second one
};

/// Returns the keys whose values differ, in the order of the sections. If a list of tables has two
/// different lengths, one difference gives the lengths. Tables that both lists have are compared.
std::vector<ConfigDifference> differences(const RunConfig& first, const RunConfig& second);

}  // namespace tessera
