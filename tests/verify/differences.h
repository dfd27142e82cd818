#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "verify/verify.h"

namespace tessera::testing {

/// The quantities that differ in f64.
inline std::vector<std::string> differences(const Verification& found) {
  std::vector<std::string> names;
  for (const Deviation& deviation : found.exact) {
    if (deviation.relative > Verification::kBound) names.push_back(deviation.quantity);
  }
  return names;
}

/// Where a quantity of f64 differs.
inline std::string where(const Verification& found, const std::string& quantity) {
  return std::ranges::find(found.exact, quantity, &Deviation::quantity)->where;
}

}  // namespace tessera::testing
