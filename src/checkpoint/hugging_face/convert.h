#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/hugging_face/export.h"

namespace tessera {

/// The options of import_model().
struct ImportOptions {
  std::optional<Precision> precision;  ///< of runs of the model; none: by the type of its weights
  /// Keys of config.json that Tessera does not know and that, as the user says, have no effect.
  std::vector<std::string> accepted_keys;
  bool progress = true;
};

/// The result of import_model().
struct ImportReport {
  fs::path checkpoint;
  std::string architecture;
  Precision precision = Precision::bf16;
  int64_t parameters = 0;
  int64_t bytes = 0;
};

/// Returns the text of the configuration of an imported model. The keys about training have
/// arbitrary values, because nothing is known about the model's training. Throws Error, with a
/// message that starts with `origin`, when the model breaks the rule of a key: like the
/// configuration of every checkpoint, the text must be readable.
std::string imported_config(const ModelConfig& model, Precision precision,
                            const std::string& origin);

/// Imports a transformers model from `folder` as the checkpoint of step 0 in `output`. Evaluation,
/// generation and (as checkpoint.initial) training can use the checkpoint. Logs, in lines that
/// start with "note:", the settings with which transformers would train the model differently.
/// Warns when the tokenizer has more tokens than the model. Throws Error as SourceModel does, and
/// when the token that ends documents is not a token of the model.
ImportReport import_model(const fs::path& folder, const fs::path& output,
                          const ImportOptions& options, const Logger& logger);

/// The options of export_model().
struct ExportModelOptions {
  std::string dtype;  ///< "bf16", "f16", "f32"; empty: an imported checkpoint's own types,
                      ///< otherwise the type of the training's precision
  int64_t shard_bytes = 5'000'000'000;
  bool fused_experts = false;
  bool progress = true;
};

/// Exports a checkpoint as a transformers model. `path` is a run's folder, its folder of
/// checkpoints or one checkpoint. Chooses the checkpoint as find_checkpoint() does and warns as
/// warn_of_newer() does. Throws as find_checkpoint(), read_or_advise() and export_checkpoint() do.
hugging_face::ExportReport export_model(const fs::path& path, const fs::path& output,
                                        const ExportModelOptions& options,
                                        const Logger& logger = Logger());

}  // namespace tessera
