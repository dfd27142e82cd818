#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/safetensors_reader.h"

namespace tessera::hugging_face {

inline constexpr std::string_view kWeightsName = "model.safetensors";
inline constexpr std::string_view kWeightsIndexName = "model.safetensors.index.json";

/// A tensor and the file that it stands in.
struct FolderTensor {
  const SafetensorsReader* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
};

/// The weights of a model of transformers: model.safetensors, or shards and their index
/// model.safetensors.index.json. Tensors are not read yet.
///
/// Nothing is trusted: the index may name plain files of the folder only, each tensor that it names
/// must stand in the file that it says, each tensor of a file must be named, no tensor may stand in
/// two files, and no shard may lie beside those that it names. Throws Error naming the file and the
/// tensor.
class WeightFolder {
 public:
  explicit WeightFolder(const fs::path& folder);
  WeightFolder(const WeightFolder&) = delete;
  WeightFolder& operator=(const WeightFolder&) = delete;

  /// By name.
  const std::map<std::string, FolderTensor>& tensors() const { return tensors_; }
  /// Sentences on what is odd but harmless.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void open(const fs::path& path);
  void open_shards(const fs::path& folder);

  std::map<std::string, SafetensorsReader> files_;  // by file name
  std::map<std::string, FolderTensor> tensors_;
  std::vector<std::string> notes_;
};

}  // namespace tessera::hugging_face
