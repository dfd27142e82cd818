#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

namespace tessera::hugging_face {

inline constexpr std::string_view kWeightsExtension = ".safetensors";

/// What a model.safetensors.index.json says.
struct WeightIndex {
  std::map<std::string, std::string> file_of;  ///< by tensor
  std::set<std::string> files;
  std::string total_size;  ///< the number of bytes as it stands there; empty: none
};

/// Reads the text of an index, which is not trusted; `origin` is what errors call it. Throws Error
/// when it names no tensor, or for a tensor anything but a plain name of a .safetensors file.
WeightIndex read_weight_index(std::string_view text, const std::string& origin);

}  // namespace tessera::hugging_face
