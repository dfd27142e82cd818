#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/hugging_face/read_config.h"
#include "checkpoint/hugging_face/weight_folder.h"
#include "checkpoint/hugging_face/weight_map.h"
#include "tensor/dtype.h"

namespace tessera::hugging_face {

/// The name of a checkpoint's state value for the architecture of the imported model.
inline constexpr std::string_view kArchitectureState = "hugging_face.architecture";
inline constexpr std::string_view kConfigName = "config.json";
inline constexpr std::string_view kGenerationConfigName = "generation_config.json";

/// A transformers model in a folder, opened for import. Its config.json has been read; its weights
/// have not.
class SourceModel {
 public:
  /// Reads the configuration as read_config() does, and matches every tensor of the folder with the
  /// model's parameters, by name and shape. Throws Error that names the first ten tensors that are
  /// missing, left over or of another shape. Throws Error also for a tensor of a type other than
  /// bf16, f16 or f32, and when the experts of one layer differ in type.
  explicit SourceModel(const fs::path& folder, std::span<const std::string> accepted_keys = {});

  const ReadConfig& config() const { return config_; }
  /// Returns notes for the user about the model, one sentence each.
  std::vector<std::string> notes() const;
  /// Returns the narrowest type that holds the elements of all tensors: f32 for bf16 beside f16.
  DType widest() const;
  /// Return the number of bytes and of elements of the weights.
  int64_t bytes() const;
  int64_t elements() const;

  /// Writes the checkpoint of step 0, with the configuration `config_toml` and the folder's
  /// tokenizer files, into `output`. Returns the checkpoint's path. Weights keep their bytes and
  /// are copied a little at a time, so memory does not grow with the model. Throws Error, and
  /// leaves nothing behind, when `output` already holds a checkpoint, when a weight is NaN or
  /// infinite (the error names tensor and element), and when interrupted.
  fs::path import(const fs::path& output, const std::string& config_toml, bool progress) const;

 private:
  void match_tensors();
  /// Throws Error unless a stored head of a model with tied_head equals the embedding.
  void match_tied_head();
  void check_element_types() const;
  const FolderTensor& tensor(const MappedSegment& segment) const;
  /// Returns the element type of the tensors of a parameter.
  DType type_of(size_t parameter) const;

  fs::path folder_;
  ReadConfig config_;
  WeightFolder weights_;
  WeightMap map_;
  std::vector<std::string> notes_;  // of the matching
};

}  // namespace tessera::hugging_face
