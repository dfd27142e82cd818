// A SourceModel is made in two steps. Its constructor matches the tensors of the folder with the
// weight map of the configuration, and checks names, shapes and element types without reading a
// weight. import() then streams the weights, segment by segment, into a new checkpoint.

#include "checkpoint/hugging_face/import.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/hugging_face/copy_progress.h"
#include "checkpoint/hugging_face/element_check.h"
#include "checkpoint/safetensors_types.h"
#include "checkpoint/save.h"

namespace tessera::hugging_face {
namespace {

constexpr size_t kMostListed = 10;      // differences that one error message lists
constexpr int64_t kMostMissing = 1000;  // with more missing tensors, no map is made
constexpr std::string_view kHead = "lm_head.weight";

/// The files beside the weights that a checkpoint carries if the folder has them. config.json keeps
/// the ids of special tokens.
constexpr std::array<std::string_view, 11> kCarriedFiles{kConfigName,
                                                         kGenerationConfigName,
                                                         "tokenizer.json",
                                                         "tokenizer.model",
                                                         "tokenizer_config.json",
                                                         "special_tokens_map.json",
                                                         "added_tokens.json",
                                                         "vocab.json",
                                                         "merges.txt",
                                                         "chat_template.jinja",
                                                         "chat_template.json"};

std::string shape_text(const std::vector<int64_t>& dims) { return Shape(dims).text(); }

/// Returns whether a tensor holds rotary frequencies. Old versions of transformers stored them, for
/// each layer or once, although they are computed. The library skips the same names.
bool is_derived(std::string_view name) { return name.ends_with("rotary_emb.inv_freq"); }

bool names_fused_experts(const WeightFolder& weights) {
  return std::ranges::any_of(weights.tensors(), [](const auto& item) {
    return item.first.ends_with(".experts.gate_up_proj");
  });
}

/// Returns the difference between two tensors that should be equal, or an empty text. The text
/// stands between their names in a sentence: "differs from", or "is F32 [2], not BF16 [2] as".
std::string difference(const FolderTensor& first, const FolderTensor& second) {
  const SafetensorsEntry& a = *first.entry;
  const SafetensorsEntry& b = *second.entry;
  if (a.dtype != b.dtype || a.shape != b.shape) {
    return fmt::format("is {} {}, not {} {} as", a.dtype, shape_text(a.shape), b.dtype,
                       shape_text(b.shape));
  }
  bool same = true;
  std::vector<std::byte> second_bytes;
  int64_t compared = 0;
  first.file->read_chunks(a, 0, a.bytes(), [&](std::span<std::byte> chunk) {
    second_bytes.resize(chunk.size());
    second.file->read(b, compared, second_bytes);
    same = same && std::ranges::equal(chunk, second_bytes);
    compared += static_cast<int64_t>(chunk.size());
  });
  return same ? "" : "differs from";
}

/// Returns the weight map of a model. Throws Error when the model needs many more tensors than the
/// folder has: a short configuration could otherwise ask for a map that exceeds the memory. Smaller
/// differences are reported by name later.
WeightMap checked_map(const fs::path& folder, const ReadConfig& config,
                      const WeightFolder& weights) {
  const ExpertNaming naming =
      names_fused_experts(weights) ? ExpertNaming::fused : ExpertNaming::single;
  const Architecture& architecture = *config.architecture;
  const int64_t expected = count_tensors(architecture, config.model, naming);
  const auto found = static_cast<int64_t>(weights.tensors().size());
  if (expected > found + kMostMissing) {
    throw Error(
        "{} has {} tensors, but its {} (num_hidden_layers {}{}) describes a model of {}; fetch the "
        "folder again or mend the configuration",
        folder.string(), found, kConfigName, config.model.layers,
        architecture.mixture()
            ? fmt::format(", {} {}", architecture.experts_key, config.model.experts)
            : "",
        expected);
  }
  return weight_map(architecture, config.model, naming);
}

/// Passes the elements of a segment to the sink, a little at a time.
void copy_segment(const MappedSegment& segment, const FolderTensor& source, DType dtype,
                  const ByteSink& sink, CopyProgress& copied) {
  const int64_t size = dtype_size(dtype);
  int64_t element = segment.tensor_begin;
  source.file->read_chunks(
      *source.entry, segment.tensor_begin * size, segment.count * size,
      [&](std::span<std::byte> chunk) {
        if (const int64_t bad = first_non_finite_element(chunk, dtype); bad >= 0) {
          throw Error("{}: element {} of tensor {} is NaN or infinite; the model is broken",
                      source.file->path().string(), element + bad, in_quotes(source.entry->name));
        }
        sink(chunk);
        copied.add(static_cast<int64_t>(chunk.size()));
        element += static_cast<int64_t>(chunk.size()) / size;
      });
}

}  // namespace

SourceModel::SourceModel(const fs::path& folder, std::span<const std::string> accepted_keys)
    : folder_(folder),
      config_(read_config(read_file(folder / kConfigName), (folder / kConfigName).string(),
                          accepted_keys)),
      weights_(folder),
      map_(checked_map(folder, config_, weights_)) {
  match_tensors();
  check_element_types();
}

void SourceModel::match_tensors() {
  std::vector<std::string> differences;
  std::vector<std::string> derived;
  std::set<std::string_view> expected;
  for (const auto& [name, shape] : map_.tensors) {
    expected.insert(name);
    const auto found = weights_.tensors().find(name);
    if (found == weights_.tensors().end()) {
      differences.push_back(
          fmt::format("tensor {} {} is missing{}", in_quotes(name), shape.text(),
                      name == kHead ? "; if the model computes logits with its embedding, set "
                                      "tie_word_embeddings to true"
                                    : ""));
    } else if (!std::ranges::equal(found->second.entry->shape, shape.dims())) {
      differences.push_back(fmt::format("tensor {} is {}, expected {}", in_quotes(name),
                                        shape_text(found->second.entry->shape), shape.text()));
    }
  }
  for (const auto& [name, stored] : weights_.tensors()) {
    if (expected.contains(name)) continue;
    if (is_derived(name)) {
      derived.push_back(name);
    } else if (name == kHead && config_.model.tied_head && differences.empty()) {
      match_tied_head();
    } else {
      differences.push_back(fmt::format("tensor {} {} has no place in the model", in_quotes(name),
                                        shape_text(stored.entry->shape)));
    }
  }
  if (!derived.empty()) {
    notes_.push_back(fmt::format(
        "{} is computed from {}, not read",
        derived.size() == 1
            ? fmt::format("tensor {}", in_quotes(derived[0]))
            : fmt::format("each of {} tensors such as {}", derived.size(), in_quotes(derived[0])),
        kConfigName));
  }
  if (differences.empty()) return;
  const size_t count = differences.size();
  differences.resize(std::min(count, kMostListed));
  if (count > kMostListed) differences.push_back(fmt::format("and {} more", count - kMostListed));
  throw Error("the weights in {} are not those of the {} that its {} describes:\n  {}",
              folder_.string(), config_.architecture->name, kConfigName, join(differences, "\n  "));
}

void SourceModel::match_tied_head() {
  const auto& tensors = weights_.tensors();
  const std::string found =
      difference(tensors.at(std::string(kHead)), tensors.at("model.embed_tokens.weight"));
  if (found.empty()) return;
  throw Error(
      "{} says tie_word_embeddings, but the weights hold a 'lm_head.weight' that {} "
      "'model.embed_tokens.weight'; set tie_word_embeddings to false, or remove the tensor",
      (folder_ / kConfigName).string(), found);
}

void SourceModel::check_element_types() const {
  for (const auto& [name, shape] : map_.tensors) {
    const std::string& found = weights_.tensors().at(name).entry->dtype;
    const auto dtype = dtype_from_safetensors(found);
    if (dtype && is_floating(*dtype) && holds_exactly(DType::f32, *dtype)) continue;
    throw Error("{}: tensor {} has elements of type {}; expected BF16, F16 or F32",
                folder_.string(), in_quotes(name), found);
  }
  for (size_t i = 0; i < map_.parameters.size(); ++i) {
    const FolderTensor& first = tensor(map_.parameter_segments[i].front());
    for (const MappedSegment& segment : map_.parameter_segments[i]) {
      const FolderTensor& other = tensor(segment);
      if (other.entry->dtype == first.entry->dtype) continue;
      throw Error("{}: the experts of one layer have one type, but tensor {} is {} and {} is {}",
                  folder_.string(), in_quotes(first.entry->name), first.entry->dtype,
                  in_quotes(other.entry->name), other.entry->dtype);
    }
  }
}

const FolderTensor& SourceModel::tensor(const MappedSegment& segment) const {
  return weights_.tensors().at(map_.tensors[segment.tensor].name);
}

DType SourceModel::type_of(size_t parameter) const {
  return *dtype_from_safetensors(tensor(map_.parameter_segments[parameter].front()).entry->dtype);
}

std::vector<std::string> SourceModel::notes() const {
  std::vector<std::string> notes = config_.notes;
  notes.insert(notes.end(), weights_.notes().begin(), weights_.notes().end());
  notes.insert(notes.end(), notes_.begin(), notes_.end());
  return notes;
}

DType SourceModel::widest() const {
  DType widest = type_of(0);
  for (size_t i = 1; i < map_.parameters.size(); ++i) {
    const DType dtype = type_of(i);
    // bf16 and f16 hold different numbers, so neither is wider than the other. f32 holds both.
    if (!holds_exactly(widest, dtype)) widest = holds_exactly(dtype, widest) ? dtype : DType::f32;
  }
  return widest;
}

int64_t SourceModel::bytes() const {
  int64_t total = 0;
  for (size_t i = 0; i < map_.parameters.size(); ++i) {
    total += map_.parameters[i].shape.elements() * dtype_size(type_of(i));
  }
  return total;
}

int64_t SourceModel::elements() const {
  int64_t total = 0;
  for (const NamedShape& parameter : map_.parameters) total += parameter.shape.elements();
  return total;
}

fs::path SourceModel::import(const fs::path& output, const std::string& config_toml,
                             bool progress) const {
  const CheckpointListing existing = list_checkpoints(output);
  if (!existing.complete.empty() || !existing.broken.empty()) {
    throw Error("{} holds a checkpoint already; remove it or choose another --output",
                output.string());
  }
  CopyProgress copied("importing", bytes(), progress);
  std::vector<TensorToSave> streams;
  for (size_t i = 0; i < map_.parameters.size(); ++i) {
    const DType dtype = type_of(i);
    const auto produce = [this, i, dtype, &copied](const ByteSink& sink) {
      for (const MappedSegment& segment : map_.parameter_segments[i]) {
        copy_segment(segment, tensor(segment), dtype, sink, copied);
      }
    };
    streams.push_back(whole_to_save(
        "parameters", {map_.parameters[i].name, dtype, map_.parameters[i].shape, produce}));
  }
  std::vector<CarriedFile> carried;
  for (const std::string_view name : kCarriedFiles) {
    const fs::path path = folder_ / name;
    if (is_file(path)) carried.push_back({std::string(name), read_file(path)});
  }
  CheckpointState state;
  state.config = config_toml;
  state.values = {{std::string(kArchitectureState), std::string(config_.architecture->name)},
                  {"hugging_face.folder", folder_.string()}};
  fs::path path = save_streams(output, state, streams, carried);
  copied.finish();
  return path;
}

}  // namespace tessera::hugging_face
