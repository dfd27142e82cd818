// An export takes four steps. ExportTensors matches the checkpoint's parameters with the tensors of
// the weight map. plan_shards() distributes the tensors over files. write_shards() streams them
// into a ModelFolder. export_checkpoint() adds the index, the carried files and the configuration,
// and publishes the folder.

#include "checkpoint/hugging_face/export.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/hugging_face/copy_progress.h"
#include "checkpoint/hugging_face/element_check.h"
#include "checkpoint/hugging_face/import.h"
#include "checkpoint/hugging_face/model_folder.h"
#include "checkpoint/hugging_face/write_config.h"
#include "checkpoint/parallel_tasks.h"
#include "checkpoint/safetensors_writer.h"
#include "data/tokenizer.h"

namespace tessera::hugging_face {
namespace {

constexpr int kFilesAtOnce = 2;
constexpr const char* kParameterGroup = "parameters";  // the group of a checkpoint's tensors
/// Any one of these files holds a whole tokenizer.
constexpr std::array<std::string_view, 3> kTokenizerFiles{"tokenizer.json", "tokenizer.model",
                                                          "vocab.json"};

/// Converts elements between floating types. Its result refers to the argument if the types are
/// equal, and otherwise to a buffer that the next call overwrites.
class Converter {
 public:
  Converter(DType from, DType to) : from_(from), to_(to) {
    if (from_ != to_) {
      converted_.resize(static_cast<size_t>(kReadChunk / dtype_size(from_) * dtype_size(to_)));
    }
  }

  /// Converts at most kReadChunk bytes.
  std::span<const std::byte> operator()(std::span<std::byte> bytes) {
    if (from_ == to_) return bytes;
    const int64_t count = static_cast<int64_t>(bytes.size()) / dtype_size(from_);
    convert(Tensor::wrap(bytes.data(), {count}, from_),
            Tensor::wrap(converted_.data(), {count}, to_));
    return std::span(converted_).first(static_cast<size_t>(count * dtype_size(to_)));
  }

 private:
  DType from_, to_;
  std::vector<std::byte> converted_;
};

/// The tensors of an export. A tensor is read from the checkpoint's parameters, checked and
/// converted while it is written, so that no tensor is in memory as a whole. stream() and the
/// streams that it returns may be used by several threads.
class ExportTensors {
 public:
  /// Matches the checkpoint's parameters with the model's. Throws Error that names every parameter
  /// that is missing, left over or of another shape or type. `checkpoint` and `map` must outlive
  /// this object.
  ExportTensors(const CheckpointReader& checkpoint, const WeightMap& map,
                std::optional<DType> dtype)
      : checkpoint_(checkpoint), map_(map), dtype_(dtype) {
    std::vector<std::string> differences;
    std::set<std::string_view> expected;
    for (const auto& [name, shape] : map_.parameters) {
      expected.insert(name);
      const CheckpointTensor* found = checkpoint_.find(kParameterGroup, name);
      sources_.push_back(found);
      if (found == nullptr) {
        differences.push_back(fmt::format("{} is missing", in_quotes(name)));
      } else if (found->shape != shape || !is_floating(found->dtype)) {
        differences.push_back(fmt::format("{} is {} {}, expected {}", in_quotes(name),
                                          dtype_name(found->dtype), found->shape.text(),
                                          shape.text()));
      }
    }
    for (const CheckpointTensor& tensor : checkpoint_.manifest().tensors) {
      if (tensor.group == kParameterGroup && !expected.contains(tensor.name)) {
        differences.push_back(fmt::format("{} has no place", in_quotes(tensor.name)));
      }
    }
    checked_ = std::make_unique<std::once_flag[]>(sources_.size());
    if (differences.empty()) return;
    throw Error("the parameters of {} are not those of the model in its {}: {}",
                checkpoint_.path().string(), kCheckpointConfigName, join(differences, "; "));
  }

  int64_t count() const { return static_cast<int64_t>(map_.tensors.size()); }
  /// Returns the name and the shape of tensor `index` in the export.
  const NamedShape& shape(int64_t index) const { return map_.tensors[static_cast<size_t>(index)]; }
  DType dtype(int64_t index) const {
    if (dtype_) return *dtype_;
    const auto& segments = map_.tensor_segments[static_cast<size_t>(index)];
    const DType first = source(segments.front()).dtype;
    const bool equal = std::ranges::all_of(
        segments, [&](const MappedSegment& segment) { return source(segment).dtype == first; });
    return equal ? first : DType::f32;
  }

  int64_t bytes(int64_t index) const {
    return shape(index).shape.elements() * dtype_size(dtype(index));
  }

  /// Returns the tensor for write_streams(). Each call of its sink adds to `progress`.
  TensorStream stream(int64_t index, CopyProgress& progress) const {
    return {shape(index).name, dtype(index), shape(index).shape,
            [this, index, &progress](const ByteSink& sink) { produce(index, sink, progress); }};
  }

 private:
  const CheckpointTensor& source(const MappedSegment& segment) const {
    return *sources_[segment.parameter];
  }
  /// Passes the elements of a tensor to `sink`. Throws Error on a value that is not finite.
  void produce(int64_t index, const ByteSink& sink, CopyProgress& progress) const {
    const std::string name = in_quotes(shape(index).name);
    const DType to = dtype(index);
    for (const MappedSegment& segment : map_.tensor_segments[static_cast<size_t>(index)]) {
      const CheckpointTensor& tensor = source(segment);
      const int64_t size = dtype_size(tensor.dtype);
      std::call_once(checked_[segment.parameter], [&] { checkpoint_.check(tensor); });
      Converter converter(tensor.dtype, to);
      int64_t element = segment.parameter_begin;
      const auto pass_on = [&](std::span<std::byte> chunk) {
        if (const int64_t bad = first_non_finite_element(chunk, tensor.dtype); bad >= 0) {
          throw Error("{}: element {} of {} (tensor {} of the export) is NaN or infinite",
                      checkpoint_.path().string(), element + bad, in_quotes(tensor.name), name);
        }
        const auto result = converter(chunk);
        if (const int64_t bad = first_non_finite_element(result, to); bad >= 0) {
          throw Error(
              "element {} of {} (tensor {} of the export) is beyond the range of {}; export "
              "with --dtype bf16 or f32",
              element + bad, in_quotes(tensor.name), name, dtype_name(to));
        }
        sink(result);
        progress.add(static_cast<int64_t>(result.size()));
        element += static_cast<int64_t>(chunk.size()) / size;
      };
      checkpoint_.read_chunks(tensor, segment.parameter_begin * size, segment.count * size,
                              pass_on);
    }
  }

  const CheckpointReader& checkpoint_;
  const WeightMap& map_;
  std::optional<DType> dtype_;
  std::vector<const CheckpointTensor*> sources_;  // by parameter
  std::unique_ptr<std::once_flag[]> checked_;     // by parameter: its bytes have the right hash
};

/// The indices of the tensors of one weight file.
using Shard = std::vector<int64_t>;

/// Distributes the tensors in their order over files of at most `max_bytes`. A larger tensor gets a
/// file of its own.
std::vector<Shard> plan_shards(const ExportTensors& tensors, int64_t max_bytes) {
  std::vector<Shard> shards;
  int64_t bytes = 0;
  for (int64_t i = 0; i < tensors.count(); ++i) {
    const int64_t size = tensors.bytes(i);
    if (shards.empty() || (bytes > 0 && size > max_bytes - bytes)) {
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
  parallel_tasks(kFilesAtOnce, static_cast<int64_t>(shards.size()), [&](int64_t index) {
    const auto shard = static_cast<size_t>(index);
    std::vector<TensorStream> streams;
    for (const int64_t tensor : shards[shard]) streams.push_back(tensors.stream(tensor, progress));
    const fs::path path = folder / shard_name(shard, shards.size());
    bytes[shard] = write_streams(path, streams, {{"format", "pt"}}).bytes;
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

/// Returns whether a file is a byte tokenizer, which only Tessera can read.
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

/// Returns the name of an element type in transformers.
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

/// Returns the name of the type that most weights have, for config.json.
std::string common_dtype(const ExportTensors& tensors) {
  std::map<DType, int64_t> elements;
  for (int64_t i = 0; i < tensors.count(); ++i) {
    elements[tensors.dtype(i)] += tensors.shape(i).shape.elements();
  }
  const auto commonest =
      std::ranges::max_element(elements, {}, [](const auto& item) { return item.second; });
  return library_name(commonest->first);
}

/// Returns why some versions of the library refuse the model; empty if none does.
std::string refusal_note(const Architecture& architecture, const ModelConfig& model) {
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
  report.note = refusal_note(*report.architecture, options.model);
  ModelFolder folder(output);
  const WeightMap map = weight_map(*report.architecture, options.model, options.experts);
  const ExportTensors tensors(checkpoint, map, options.dtype);

  for (int64_t i = 0; i < tensors.count(); ++i) report.bytes += tensors.bytes(i);
  report.tensors = tensors.count();
  const std::vector<Shard> shards = plan_shards(tensors, options.shard_bytes);
  report.files = static_cast<int64_t>(shards.size());

  const std::string config_name(kConfigName);
  const std::string original =  // of an imported model
      checkpoint.has_file(config_name) ? checkpoint.extra_file(config_name) : "";
  report.dtype = common_dtype(tensors);
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
  write(config_name, config);
  report.tokenizer = std::ranges::any_of(
      kTokenizerFiles, [&](std::string_view name) { return files.contains(std::string(name)); });
  folder.publish(files);
  progress.finish();
  return report;
}

}  // namespace tessera::hugging_face
