#pragma once

#include <optional>

#include "base/file.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/hugging_face/weight_map.h"
#include "tensor/dtype.h"

namespace tessera::hugging_face {

struct ExportOptions {
  ModelConfig model;  ///< of the checkpoint
  int64_t max_context = 0;
  int64_t end_of_document = -1;  ///< the tokenizer's; -1: not known
  /// Of all weights: bf16, f16 or f32. Nothing: each keeps the type that the checkpoint has it in.
  std::optional<DType> dtype;
  int64_t shard_bytes = 5'000'000'000;  ///< tensors of a file at most; a larger tensor has its own
  ExpertNaming experts = ExpertNaming::single;
  bool progress = false;
};

/// What export_checkpoint() wrote.
struct ExportReport {
  fs::path checkpoint;
  int64_t step = 0;
  const Architecture* architecture = nullptr;
  std::string dtype;  ///< of most weights: "bfloat16"
  int64_t tensors = 0;
  int64_t bytes = 0;
  int64_t files = 0;                 ///< of weights
  std::vector<std::string> carried;  ///< files that came with the checkpoint
  bool tokenizer = false;            ///< whether a tokenizer is among them
};

/// Writes a checkpoint's parameters as a model of transformers: config.json, safetensors files with
/// an index where there are several, the files that the checkpoint carries and
/// generation_config.json. The folder appears whole or not at all, and memory does not grow with
/// the model. Throws Error when `output` cannot be
/// the folder (see OutputFolder), when no architecture of transformers has
/// the model's layers (naming the keys), when the checkpoint is damaged, when a weight is not
/// finite or leaves the range of the element type (naming tensor and element) and when interrupted.
ExportReport export_checkpoint(const CheckpointReader& checkpoint, const fs::path& output,
                               const ExportOptions& options);

}  // namespace tessera::hugging_face
