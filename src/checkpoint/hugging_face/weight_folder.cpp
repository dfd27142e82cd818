#include "checkpoint/hugging_face/weight_folder.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/links.h"
#include "base/strict_json.h"

namespace tessera::hugging_face {
namespace {

using Json = nlohmann::json;

constexpr int kIndexDepth = 4;  // levels of nesting: the index, its metadata and values of tools

/// Returns a number as the text of a whole number. Some tools write whole numbers with a fraction
/// of zero. Above 2^53 such a number would not be exact, and no model has that many bytes.
std::string whole_text(const Json& number) {
  constexpr double kExact = 0x1p53;
  if (!number.is_number_float()) return number.dump();
  const double value = number.get<double>();
  const bool is_whole = value >= 0 && value <= kExact && value == std::floor(value);
  return is_whole ? std::to_string(static_cast<int64_t>(value)) : number.dump();
}

/// Throws Error for a shard that the index does not name: its weights would be dropped silently.
void refuse_forgotten_shards(const fs::path& folder, const WeightIndex& index) {
  for (const fs::path& path : list_folder(folder)) {
    const std::string name = path.filename().string();
    if (!name.starts_with("model") || !name.ends_with(kWeightsExtension) ||
        index.files.contains(name)) {
      continue;
    }
    throw Error("{} is not named by {}; remove the one or the other, or fetch the folder again",
                path.string(), kWeightsIndexName);
  }
}

}  // namespace

WeightIndex read_weight_index(std::string_view text, const std::string& origin) {
  const Json json = parse_strict_json(text, origin, kIndexDepth);
  const auto weights = json.is_object() ? json.find("weight_map") : json.end();
  if (weights == json.end() || !weights->is_object()) {
    throw Error("{}: found no object 'weight_map', which says the file of each tensor", origin);
  }
  WeightIndex index;
  for (const auto& [tensor, file] : weights->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (!is_plain_name(name) || !name.ends_with(kWeightsExtension)) {
      throw Error("{}: the file of tensor {} is {}; expected the plain name of a {} file beside it",
                  origin, in_quotes(tensor), printable(file.dump()), kWeightsExtension);
    }
    index.file_of.emplace(tensor, name);
    index.files.insert(name);
  }
  if (index.files.empty()) throw Error("{}: its weight_map names no tensor", origin);
  const auto metadata = json.find("metadata");
  if (metadata != json.end() && metadata->is_object()) {
    const auto size = metadata->find("total_size");
    if (size != metadata->end() && size->is_number()) index.total_size = whole_text(*size);
  }
  return index;
}

WeightFolder::WeightFolder(const fs::path& folder) {
  if (is_file(folder / kWeightsIndexName)) {
    open_shards(folder);
  } else if (is_file(folder / kWeightsName)) {
    open(folder / kWeightsName);
  } else {
    const bool pickled =
        is_file(folder / "pytorch_model.bin") || is_file(folder / "pytorch_model.bin.index.json");
    const std::string dangling =
        dangling_link_text(folder / kWeightsName) + dangling_link_text(folder / kWeightsIndexName);
    throw Error("{} holds no {} and no {}{}{}", folder.string(), kWeightsName, kWeightsIndexName,
                dangling,
                pickled ? "; its pytorch_model.bin is a program as much as data and is not read: "
                          "save it as safetensors with transformers"
                        : "; give the folder of a model of transformers");
  }
}

void WeightFolder::open(const fs::path& path) {
  const std::string name = path.filename().string();
  const SafetensorsReader& file = files_.emplace(name, SafetensorsReader(path)).first->second;
  for (const SafetensorsEntry& entry : file.entries()) {
    const auto [found, added] = tensors_.emplace(entry.name, FolderTensor{&file, &entry});
    if (added) continue;
    throw Error("the tensor {} stands in {} and in {}; expected it once", in_quotes(entry.name),
                found->second.file->path().string(), path.string());
  }
}

void WeightFolder::open_shards(const fs::path& folder) {
  const fs::path path = folder / kWeightsIndexName;
  const WeightIndex index = read_weight_index(read_file(path), path.string());
  for (const std::string& name : index.files) {
    if (!is_file(folder / name)) {
      throw Error("{} names the shard {}, which is missing; fetch the folder again", path.string(),
                  in_quotes(name));
    }
    open(folder / name);
  }
  refuse_forgotten_shards(folder, index);
  for (const auto& [tensor, file] : index.file_of) {
    const auto found = tensors_.find(tensor);
    if (found == tensors_.end()) {
      throw Error("{} says that tensor {} stands in {}, but it does not", path.string(),
                  in_quotes(tensor), in_quotes(file));
    }
    if (found->second.file->path().filename() != file) {
      throw Error("{} says that tensor {} stands in {}, but it stands in {}", path.string(),
                  in_quotes(tensor), in_quotes(file),
                  found->second.file->path().filename().string());
    }
  }
  int64_t bytes = 0;
  for (const auto& [tensor, stored] : tensors_) {
    bytes += stored.entry->bytes();
    if (index.file_of.contains(tensor)) continue;
    throw Error("{} does not name tensor {}, which stands in {}", path.string(), in_quotes(tensor),
                stored.file->path().string());
  }
  if (!index.total_size.empty() && index.total_size != std::to_string(bytes)) {
    notes_.push_back(fmt::format("{} says a total_size of {} bytes; its tensors have {}",
                                 path.string(), index.total_size, bytes));
  }
}

}  // namespace tessera::hugging_face
