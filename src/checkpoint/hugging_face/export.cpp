#include "checkpoint/hugging_face/export.h"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/hugging_face/export_tensor.h"
#include "checkpoint/hugging_face/import.h"
#include "checkpoint/hugging_face/write_config.h"
#include "checkpoint/parallel_tasks.h"
#include "checkpoint/partial_folder.h"
#include "data/tokenizer.h"

namespace tessera::hugging_face {
namespace {

constexpr std::string_view kPartialSuffix = ".tessera-partial";
constexpr int kThreads = 2;  // files written at once

/// The tensors of one file, by index.
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

void write_index(const fs::path& folder, const ExportTensors& tensors,
                 const std::vector<Shard>& shards, int64_t total) {
  nlohmann::ordered_json weights = nlohmann::ordered_json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const int64_t tensor : shards[i]) {
      weights[tensors.shape(tensor).name] = shard_name(i, shards.size());
    }
  }
  const nlohmann::ordered_json json{{"metadata", {{"total_size", total}}},
                                    {"weight_map", std::move(weights)}};
  write_file(folder / kWeightsIndexName, json.dump(2) + "\n");
}

void require_free(const fs::path& output) {
  std::error_code code;
  if (!fs::exists(output, code)) return;
  if (!fs::is_directory(output, code) || !fs::is_empty(output, code)) {
    throw Error("{} is there already and not an empty folder; choose another --output",
                output.string());
  }
}

/// Whether a file is the byte tokenizer's, which is ours alone: the library could not read it.
bool is_byte_tokenizer(const fs::path& path) {
  if (path.filename() != "tokenizer.json") return false;
  try {
    return load_tokenizer(path)->kind() == "bytes";
  } catch (const Error&) {
    return false;  // a tokenizer that Tessera does not read
  }
}

/// Copies what the checkpoint carries of the library's files, each checked against its hash.
std::vector<std::string> copy_carried(const CheckpointReader& checkpoint, const fs::path& folder) {
  std::vector<std::string> names;
  for (const CheckpointFile& file : checkpoint.manifest().extra_files) {
    if (file.name == kCheckpointConfigName || file.name == kConfigName) continue;
    const fs::path path = checkpoint.extra_file(file.name);
    if (is_byte_tokenizer(path)) continue;
    write_file(folder / file.name, read_file(path));
    names.push_back(file.name);
  }
  return names;
}

std::string original_config(const CheckpointReader& checkpoint) {
  for (const CheckpointFile& file : checkpoint.manifest().extra_files) {
    if (file.name == kConfigName) return read_file(checkpoint.extra_file(file.name));
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

/// The type of most weights, which config.json states.
std::string stated_dtype(const ExportTensors& tensors) {
  std::map<DType, int64_t> elements;
  for (int64_t i = 0; i < tensors.count(); ++i) {
    elements[tensors.dtype(i)] += tensors.shape(i).shape.elements();
  }
  const auto most =
      std::ranges::max_element(elements, {}, [](const auto& item) { return item.second; });
  return library_name(most->first);
}

}  // namespace

ExportReport export_checkpoint(const CheckpointReader& checkpoint, const fs::path& output,
                               const ExportOptions& options) {
  ExportReport report;
  report.architecture = &architecture_of(options.model);
  require_free(output);
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
  const fs::path place = fs::absolute(output / ".").lexically_normal().parent_path();
  const fs::path partial_path = place.string() + std::string(kPartialSuffix);
  std::error_code code;
  fs::remove_all(partial_path, code);  // of an export that was killed
  PartialFolder partial(partial_path);
  CopyProgress progress("exporting", report.bytes, options.progress);
  parallel_tasks(kThreads, report.files, [&](int64_t index) {
    const auto at = static_cast<size_t>(index);
    std::vector<TensorStream> streams;
    for (const int64_t tensor : shards[at]) streams.push_back(tensors.stream(tensor, progress));
    write_streams(partial.path() / shard_name(at, shards.size()), streams, {{"format", "pt"}});
  });
  if (shards.size() > 1) write_index(partial.path(), tensors, shards, report.bytes);
  report.carried = copy_carried(checkpoint, partial.path());
  if (std::ranges::find(report.carried, kGenerationConfigName) == report.carried.end()) {
    write_file(partial.path() / kGenerationConfigName, write_generation_config(config));
  }
  write_file(partial.path() / kConfigName, config);
  rename_folder(partial.path(), place);
  partial.keep();
  sync_directory(place.parent_path());
  progress.finish();
  return report;
}

}  // namespace tessera::hugging_face
