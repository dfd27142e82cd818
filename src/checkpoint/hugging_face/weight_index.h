#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

namespace tessera::hugging_face {

inline constexpr std::string_view kWeightsExtension = ".safetensors";

/// The content of a model.safetensors.index.json.
struct WeightIndex {
  std::map<std::string, std::string> file_of;  ///< the file's name by the tensor's name
  std::set<std::string> files;
  std::string total_size;  ///< the number of bytes as written there; empty: none
};

/// Reads the text of an index, which is not trusted. `origin` names the index in errors. Throws
/// Error when it names no tensor, and when the file of a tensor is not the plain name of a
/// .safetensors file.
WeightIndex read_weight_index(std::string_view text, const std::string& origin);

}  // namespace tessera::hugging_face
