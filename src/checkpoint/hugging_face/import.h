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

/// What a checkpoint's state says of the model that it was imported from: the architecture's name.
inline constexpr std::string_view kArchitectureState = "hugging_face.architecture";
inline constexpr std::string_view kConfigName = "config.json";
inline constexpr std::string_view kGenerationConfigName = "generation_config.json";

/// A model of transformers in a folder, opened for import: config.json and weights, which
/// are not read yet.
class SourceModel {
 public:
  /// Reads the configuration and matches every tensor of the folder with the model's parameters,
  /// by name, shape and element type. Throws Error naming every tensor that is missing, left over
  /// or of another shape, and tensors of a type that is not bf16, f16 or f32, and as read_config()
  /// does with `accepted_keys`.
  explicit SourceModel(const fs::path& folder, std::span<const std::string> accepted_keys = {});

  const ReadConfig& config() const { return config_; }
  /// What a user should know of the model: a sentence each.
  std::vector<std::string> notes() const;
  /// The widest element type among the tensors.
  DType widest() const;
  /// Bytes of the weights.
  int64_t bytes() const;
  /// Elements of the weights.
  int64_t elements() const;

  /// Writes the checkpoint of step 0 into `output`, with `config_toml` as its configuration and the
  /// folder's tokenizer files carried along, and returns its path. Weights keep the bytes that they
  /// have in the folder, a little at a time, so memory does not grow with the model. Throws Error
  /// when `output` holds a checkpoint already, when a weight is NaN or infinite (naming tensor and
  /// element) and when interrupted; nothing is left behind then.
  fs::path import(const fs::path& output, const std::string& config_toml, bool progress) const;

 private:
  void match_tensors();
  void match_tied_head();
  void check_element_types() const;
  const FolderTensor& tensor(const Segment& segment) const;
  DType type_of(size_t parameter) const;

  fs::path folder_;
  ReadConfig config_;
  WeightFolder weights_;
  WeightMap map_;
  std::vector<std::string> notes_;
};

}  // namespace tessera::hugging_face
