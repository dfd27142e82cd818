#pragma once

#include <optional>

#include "base/file.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/hugging_face/weight_map.h"
#include "tensor/dtype.h"

namespace tessera::hugging_face {

/// The options of export_checkpoint().
struct ExportOptions {
  ModelConfig model;  ///< the checkpoint's model
  int64_t max_context = 0;
  int64_t end_of_document = -1;  ///< the tokenizer's; -1: unknown
  /// The type of all weights: bf16, f16 or f32. None: each weight keeps its type in the checkpoint;
  /// a tensor made from parameters of different types is f32.
  std::optional<DType> dtype;
  int64_t shard_bytes = 5'000'000'000;  ///< the most bytes of a file, unless one tensor has more
  ExpertNaming experts = ExpertNaming::single;
  bool progress = false;
};

/// The result of export_checkpoint().
struct ExportReport {
  fs::path checkpoint;
  int64_t step = 0;
  const Architecture* architecture = nullptr;
  std::string dtype;  ///< the type of most weights: "bfloat16"
  int64_t tensors = 0;
  int64_t bytes = 0;
  int64_t files = 0;                 ///< number of weight files
  std::vector<std::string> carried;  ///< names of files that came with the checkpoint
  bool tokenizer = false;            ///< true if a tokenizer is among them
  std::string note;  ///< why some versions of transformers refuse the model; empty: none do
};

/// Writes a checkpoint's parameters as a transformers model: config.json, safetensors files with an
/// index if there are several, the files that the checkpoint carries and generation_config.json.
/// The folder appears whole or not at all. Memory does not grow with the model. Throws Error
///  - when `output` cannot be the folder (see ModelFolder),
///  - when no architecture of transformers has the model's layers, naming the keys,
///  - when the checkpoint is damaged,
///  - when a weight is not finite or beyond the element type, naming tensor and element,
///  - and when interrupted.
ExportReport export_checkpoint(const CheckpointReader& checkpoint, const fs::path& output,
                               const ExportOptions& options);

}  // namespace tessera::hugging_face
