#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/hugging_face/export.h"

namespace tessera {

struct ImportOptions {
  std::optional<Precision> precision;  ///< what the model is run in; none: by its weights
  /// Keys of config.json that Tessera does not know and that have no effect, says the user.
  std::vector<std::string> accepted_keys;
  bool progress = true;
};

/// What import_model() made.
struct ImportReport {
  fs::path checkpoint;
  std::string architecture;
  Precision precision = Precision::bf16;
  int64_t parameters = 0;
  int64_t bytes = 0;
};

/// The text of the configuration that an imported model is run with; of its training nothing is
/// known. It can be read back, as every checkpoint's can: throws Error, its message starting with
/// `origin`, when the model breaks the rule of a key.
std::string imported_config(const ModelConfig& model, Precision precision,
                            const std::string& origin);

/// Imports a model of transformers from `folder` as the checkpoint of step 0 in `output`, which
/// evaluation, generation and, as checkpoint.initial, training take. Says in lines that start with
/// "note:" what transformers would train otherwise, and warns of a tokenizer with more tokens than
/// the model. Throws Error as SourceModel does, and when the token that ends documents is none of
/// the model's.
ImportReport import_model(const fs::path& folder, const fs::path& output,
                          const ImportOptions& options, const Logger& logger);

struct ExportModelOptions {
  std::string dtype;  ///< "bf16", "f16", "f32"; empty: an imported checkpoint's own types,
                      ///< otherwise that of the training's precision
  int64_t shard_bytes = 5'000'000'000;
  bool fused_experts = false;
  bool progress = true;
};

/// Exports a checkpoint (`path` is a run's folder, its checkpoints or one) as a model of
/// transformers. Chooses, warns and throws as load_model() does, and as export_checkpoint() does.
hugging_face::ExportReport export_model(const fs::path& path, const fs::path& output,
                                        const ExportModelOptions& options,
                                        const Logger& logger = Logger());

}  // namespace tessera
