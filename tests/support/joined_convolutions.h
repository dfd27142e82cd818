#pragma once

#include <string>
#include <vector>

#include "model/model_config.h"

namespace tessera::testing {

/// Where a file of transformers' zaya classes has a parameter: in one convolution they have the
/// channels of queries and then those of keys.
struct ReferencePart {
  std::string name;
  enum class Of { whole, queries, keys } of = Of::whole;
};

inline ReferencePart reference_part(const std::string& name) {
  for (const std::string convolution : {"depthwise.", "grouped."}) {
    for (const bool keys : {false, true}) {
      const std::string own = keys ? "key_" : "query_";
      const size_t at = name.find(own + convolution);
      if (at == std::string::npos) continue;
      std::string joined = name;
      return {joined.erase(at, own.size()),
              keys ? ReferencePart::Of::keys : ReferencePart::Of::queries};
    }
  }
  return {name};
}

/// Of all elements of a tensor, or all bytes, those of a part.
template <typename T>
std::vector<T> cut_to(const std::vector<T>& all, const ReferencePart& part,
                      const ModelConfig& config) {
  if (part.of == ReferencePart::Of::whole) return all;
  const int64_t queries = std::ssize(all) * config.heads / (config.heads + config.kv_heads);
  return part.of == ReferencePart::Of::queries ? std::vector<T>(all.begin(), all.begin() + queries)
                                               : std::vector<T>(all.begin() + queries, all.end());
}

}  // namespace tessera::testing
