#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

namespace tessera::hugging_face {

inline constexpr std::string_view kWeightsExtension = ".safetensors";

/// The content of a model.safetensors.index.json.
struct WeightIndex {
  std::map<std::string, std::string> file_of;  ///< by tensor
  std::set<std::string> files;
  std::string total_size;  ///< the number of bytes as written there; empty: none
};

/// Returns the content of an index with that text, which is not trusted. `origin` names it in
/// errors. Throws Error when it names no tensor, and when the file of a tensor is not the plain
/// name of a .safetensors file.
WeightIndex read_weight_index(std::string_view text, const std::string& origin);

}  // namespace tessera::hugging_face
