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
  /// The precision that runs of the model have. If none is given, that of its weights.
  std::optional<Precision> precision;
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
/// message that starts with `origin`, if the model has a value that no configuration may have.
std::string imported_config(const ModelConfig& model, Precision precision,
                            const std::string& origin);

/// Imports a transformers model from `folder` as the checkpoint of step 0 in `output`. Evaluation,
/// generation and (as checkpoint.initial) training can use the checkpoint. Logs a line "note: ..."
/// for each setting that would make transformers train the model differently. Warns if the
/// tokenizer has more tokens than the model. Throws Error if the model cannot be read or is not
/// supported (see SourceModel), or if the token that ends documents is not a token of the model.
ImportReport import_model(const fs::path& folder, const fs::path& output,
                          const ImportOptions& options, const Logger& logger);

/// The options of export_model().
struct ExportModelOptions {
  std::string dtype;  ///< "bf16", "f16", "f32"; empty: an imported checkpoint's own types,
                      ///< otherwise the type of the training's precision
  int64_t shard_bytes = 5'000'000'000;
  bool fused_experts = false;  ///< one tensor for all experts of a layer, instead of one for each
  bool progress = true;
};

/// Exports a checkpoint as a transformers model. `path` is a run's folder, its folder of
/// checkpoints or one checkpoint. Takes the newest complete checkpoint, and warns if a newer one is
/// not complete. Throws Error if there is none, if it is damaged, or if transformers has no such
/// model (see find_checkpoint() and export_checkpoint()).
hugging_face::ExportReport export_model(const fs::path& path, const fs::path& output,
                                        const ExportModelOptions& options,
                                        const Logger& logger = Logger());

}  // namespace tessera
