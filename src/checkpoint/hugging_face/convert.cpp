#include "checkpoint/hugging_face/convert.h"

#include "checkpoint/carried_files.h"
#include "checkpoint/find_checkpoint.h"
#include "checkpoint/hugging_face/import.h"
#include "checkpoint/hugging_face/token_ids.h"
#include "config/load_config.h"
#include "config/phases.h"

namespace tessera {
namespace {

/// Returns the precision to run a model in, given the widest type of its weights. f16 has digits
/// that bf16 lacks, so it becomes fp32.
Precision precision_of(DType widest) {
  return widest == DType::bf16 ? Precision::bf16 : Precision::fp32;
}

/// Returns the element type of an export (see ExportModelOptions::dtype).
std::optional<DType> export_dtype(const CheckpointReader& reader, const RunConfig& config,
                                  const std::string& given) {
  if (!given.empty()) return dtype_from_name(given);
  if (reader.state().values.contains(std::string(hugging_face::kArchitectureState))) {
    return std::nullopt;
  }
  return config.train.precision == Precision::bf16 ? DType::bf16 : DType::f32;
}

hugging_face::ExportReport export_chosen(const fs::path& checkpoint, const fs::path& output,
                                         const ExportModelOptions& options) {
  const CheckpointReader reader(checkpoint);
  const RunConfig config = config_of_weights(
      parse_config(reader.state().config, (reader.path() / kCheckpointConfigName).string()),
      reader.state().step);
  hugging_face::ExportOptions export_options;
  export_options.model = config.model;
  export_options.max_context =
      config.model.max_context > 0 ? config.model.max_context : config.data.context;
  if (!reader.has_file(std::string(hugging_face::kConfigName))) {
    export_options.end_of_document = load_carried_tokenizer(reader)->end_of_document();
  }
  export_options.dtype = export_dtype(reader, config, options.dtype);
  export_options.shard_bytes = options.shard_bytes;
  export_options.experts = options.fused_experts ? hugging_face::ExpertNaming::fused
                                                 : hugging_face::ExpertNaming::single;
  export_options.progress = options.progress;
  return hugging_face::export_checkpoint(reader, output, export_options);
}

/// Checks that the folder's tokenizer fits its model. A tokenizer that Tessera cannot read is
/// accepted, since it can still be exported again.
void check_tokenizer(const fs::path& folder, int64_t vocabulary_size, const Logger& logger) {
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = load_tokenizer(folder);
  } catch (const Error& error) {
    logger.info("note: text needs a tokenizer that Tessera reads: {}", error.what());
    return;
  }
  const int64_t tokens = tokenizer->vocabulary_size();
  if (tokens <= vocabulary_size) return;
  if (tokenizer->end_of_document() >= vocabulary_size) {
    throw Error(
        "the tokenizer in {} ends documents with the token {}, but its model has {} tokens "
        "(vocab_size); name another as eos_token in its tokenizer_config.json",
        folder.string(), tokenizer->end_of_document(), vocabulary_size);
  }
  logger.warn(
      "warning: the tokenizer in {} has {} tokens and its model {} (vocab_size): text with one of "
      "the tokens from {} on cannot be read, and is an error wherever it occurs",
      folder.string(), tokens, vocabulary_size, vocabulary_size);
}

/// Throws Error when generation_config.json names the tokens that end a text in an unknown form.
void check_end_tokens(const fs::path& folder) {
  const fs::path path = folder / hugging_face::kGenerationConfigName;
  if (is_file(path)) hugging_face::read_end_tokens(read_file(path), path.string());
}

}  // namespace

std::string imported_config(const ModelConfig& model, Precision precision,
                            const std::string& origin) {
  RunConfig config;
  config.model = model;
  config.data.context = config.model.max_context;
  config.data.document_mask = false;  // the library attends to whole sequences
  config.train.precision = precision;
  config.train.micro_batch = 1;
  config.train.global_batch = 1;
  std::string text = to_toml(config);
  parse_config(text, origin);
  return text;
}

ImportReport import_model(const fs::path& folder, const fs::path& output,
                          const ImportOptions& options, const Logger& logger) {
  const hugging_face::SourceModel source(folder, options.accepted_keys);
  for (const std::string& note : source.notes()) logger.info("note: {}", note);
  check_tokenizer(folder, source.config().model.vocabulary_size, logger);
  check_end_tokens(folder);
  ImportReport report;
  report.architecture = source.config().architecture->name;
  report.precision = options.precision.value_or(precision_of(source.widest()));
  report.parameters = source.elements();
  report.bytes = source.bytes();
  const std::string config = imported_config(source.config().model, report.precision,
                                             (folder / hugging_face::kConfigName).string());
  report.checkpoint = source.import(output, config, options.progress);
  return report;
}

hugging_face::ExportReport export_model(const fs::path& path, const fs::path& output,
                                        const ExportModelOptions& options, const Logger& logger) {
  return read_chosen(path, logger, [&](const fs::path& checkpoint) {
    return export_chosen(checkpoint, output, options);
  });
}

}  // namespace tessera
