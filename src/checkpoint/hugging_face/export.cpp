#include "checkpoint/hugging_face/export.h"

#include <algorithm>
#include <array>
#include <map>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/hugging_face/export_tensor.h"
#include "checkpoint/hugging_face/import.h"
#include "checkpoint/hugging_face/model_folder.h"
#include "checkpoint/hugging_face/write_config.h"
#include "checkpoint/parallel_tasks.h"
#include "data/tokenizer.h"

namespace tessera::hugging_face {
namespace {

constexpr int kThreads = 2;  // number of files written at once
/// The library can make a tokenizer from any one of these files.
constexpr std::array<std::string_view, 3> kTokenizerFiles{"tokenizer.json", "tokenizer.model",
                                                          "vocab.json"};

/// The tensors of one file, as indices.
using Shard = std::vector<int64_t>;

std::vector<Shard> plan_shards(const ExportTensors& tensors, int64_t limit) {
  std::vector<Shard> shards;
  int64_t bytes = 0;
  for (int64_t i = 0; i < tensors.count(); ++i) {
    const int64_t size = tensors.bytes(i);
    if (shards.empty() || (bytes > 0 && size > limit - bytes)) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(i);
    bytes += size;
  }
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  return count == 1 ? std::string(kWeightsName)
                    : fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

/// Writes the weight files and returns their sizes in bytes by name.
std::map<std::string, int64_t> write_shards(const fs::path& folder, const ExportTensors& tensors,
                                            const std::vector<Shard>& shards,
                                            CopyProgress& progress) {
  std::vector<int64_t> bytes(shards.size());
  parallel_tasks(kThreads, static_cast<int64_t>(shards.size()), [&](int64_t index) {
    const auto at = static_cast<size_t>(index);
    std::vector<TensorStream> streams;
    for (const int64_t tensor : shards[at]) streams.push_back(tensors.stream(tensor, progress));
    const fs::path path = folder / shard_name(at, shards.size());
    bytes[at] = write_streams(path, streams, {{"format", "pt"}}).bytes;
  });
  std::map<std::string, int64_t> files;
  for (size_t i = 0; i < shards.size(); ++i) files[shard_name(i, shards.size())] = bytes[i];
  return files;
}

std::string index_text(const ExportTensors& tensors, const std::vector<Shard>& shards,
                       int64_t total) {
  nlohmann::ordered_json weights = nlohmann::ordered_json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const int64_t tensor : shards[i]) {
      weights[tensors.shape(tensor).name] = shard_name(i, shards.size());
    }
  }
  const nlohmann::ordered_json json{{"metadata", {{"total_size", total}}},
                                    {"weight_map", std::move(weights)}};
  return json.dump(2) + "\n";
}

/// Returns whether a file is the byte tokenizer's. Only Tessera has this tokenizer; the library
/// cannot read it.
bool is_byte_tokenizer(const CheckpointReader& checkpoint, const CheckpointFile& file) {
  if (file.name != "tokenizer.json") return false;
  try {
    return load_tokenizer(checkpoint.path() / file.name)->kind() == "bytes";
  } catch (const Error&) {
    return false;  // a tokenizer that Tessera does not read
  }
}

/// Returns the library's files that the checkpoint carries, each checked against its hash.
std::vector<CarriedFile> carried_files(const CheckpointReader& checkpoint) {
  std::vector<CarriedFile> files;
  for (const CheckpointFile& file : checkpoint.manifest().extra_files) {
    if (file.name == kCheckpointConfigName || file.name == kConfigName) continue;
    std::string content = checkpoint.extra_file(file.name);
    if (!is_byte_tokenizer(checkpoint, file)) files.push_back({file.name, std::move(content)});
  }
  return files;
}

std::string original_config(const CheckpointReader& checkpoint) {
  for (const CheckpointFile& file : checkpoint.manifest().extra_files) {
    if (file.name == kConfigName) return checkpoint.extra_file(file.name);
  }
  return "";
}

std::string library_name(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    case DType::f32:
      return "float32";
    default:
      break;
  }
  throw Error("weights of type {} cannot be exported as they are; give --dtype", dtype_name(dtype));
}

/// Returns the type of most weights, for config.json.
std::string stated_dtype(const ExportTensors& tensors) {
  std::map<DType, int64_t> elements;
  for (int64_t i = 0; i < tensors.count(); ++i) {
    elements[tensors.dtype(i)] += tensors.shape(i).shape.elements();
  }
  const auto most =
      std::ranges::max_element(elements, {}, [](const auto& item) { return item.second; });
  return library_name(most->first);
}

/// Returns a check of the library that this model's configuration fails; empty: none.
std::string refused_sizes(const Architecture& architecture, const ModelConfig& model) {
  if (architecture.family != Family::llama || model.hidden_size % model.heads == 0) return "";
  return fmt::format(
      "transformers 5 refuses a {} whose num_attention_heads ({}) does not divide its hidden_size "
      "({}), and version 4 loads it; for version 5 train with a model.hidden_size that is a "
      "multiple of model.heads",
      architecture.name, model.heads, model.hidden_size);
}

}  // namespace

ExportReport export_checkpoint(const CheckpointReader& checkpoint, const fs::path& output,
                               const ExportOptions& options) {
  ExportReport report{.checkpoint = checkpoint.path(), .step = checkpoint.state().step};
  report.architecture = &architecture_of(options.model);
  report.note = refused_sizes(*report.architecture, options.model);
  ModelFolder folder(output);
  const WeightMap map = weight_map(*report.architecture, options.model, options.experts);
  const ExportTensors tensors(checkpoint, map, options.dtype);

  for (int64_t i = 0; i < tensors.count(); ++i) report.bytes += tensors.bytes(i);
  report.tensors = tensors.count();
  const std::vector<Shard> shards = plan_shards(tensors, options.shard_bytes);
  report.files = static_cast<int64_t>(shards.size());

  const std::string original = original_config(checkpoint);
  report.dtype = stated_dtype(tensors);
  const std::string config = write_config(*report.architecture, options.model,
                                          {.max_context = options.max_context,
                                           .dtype = report.dtype,
                                           .original = original,
                                           .end_of_document = options.end_of_document});
  CopyProgress progress("exporting", report.bytes, options.progress);
  std::map<std::string, int64_t> files = write_shards(folder.path(), tensors, shards, progress);
  const auto write = [&](const std::string& name, const std::string& text) {
    write_file(folder.path() / name, text);
    files[name] = static_cast<int64_t>(text.size());
  };
  if (shards.size() > 1) {
    write(std::string(kWeightsIndexName), index_text(tensors, shards, report.bytes));
  }
  for (const CarriedFile& file : carried_files(checkpoint)) {
    report.carried.push_back(file.name);
    write(file.name, file.content);
  }
  if (!files.contains(std::string(kGenerationConfigName))) {
    write(std::string(kGenerationConfigName), write_generation_config(config));
  }
  write(std::string(kConfigName), config);
  report.tokenizer = std::ranges::any_of(
      kTokenizerFiles, [&](std::string_view name) { return files.contains(std::string(name)); });
  folder.publish(files);
  progress.finish();
  return report;
}

}  // namespace tessera::hugging_face
