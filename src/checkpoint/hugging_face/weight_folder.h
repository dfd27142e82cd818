#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "checkpoint/safetensors_reader.h"

namespace tessera::hugging_face {

inline constexpr std::string_view kWeightsExtension = ".safetensors";
inline constexpr std::string_view kWeightsName = "model.safetensors";
inline constexpr std::string_view kWeightsIndexName = "model.safetensors.index.json";

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

/// A tensor and the file that holds it.
struct FolderTensor {
  const SafetensorsReader* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
};

/// The weights of a transformers model: model.safetensors, or shards and their index
/// model.safetensors.index.json. Tensors are not read yet.
///
/// No file is trusted. The index may name only plain files of the folder. Each tensor that it names
/// must be in the file that it states, and each tensor of a file must be named. No tensor may be in
/// two files, and the folder may have no shard that the index does not name. Otherwise the
/// constructor throws Error that names the file and the tensor.
class WeightFolder {
 public:
  explicit WeightFolder(const fs::path& folder);
  WeightFolder(const WeightFolder&) = delete;
  WeightFolder& operator=(const WeightFolder&) = delete;

  const std::map<std::string, FolderTensor>& tensors() const { return tensors_; }
  /// Returns sentences about harmless errors in the folder, such as a wrong total size.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  /// Opens a file and adds its tensors.
  void open(const fs::path& path);
  void open_shards(const fs::path& folder);

  std::map<std::string, SafetensorsReader> files_;  // by file name
  std::map<std::string, FolderTensor> tensors_;
  std::vector<std::string> notes_;
};

}  // namespace tessera::hugging_face
