#include "checkpoint/checkpoint_files.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/strict_json.h"
#include "checkpoint/safetensors_types.h"

namespace tessera {
namespace {

/// Returns the difference between an entry of a header and its description in the manifest.
std::string entry_difference(const SafetensorsEntry* entry, std::string_view dtype,
                             std::span<const int64_t> shape) {
  if (entry == nullptr) return "its file's header does not name it";
  if (entry->dtype != dtype || !std::ranges::equal(entry->shape, shape)) {
    return fmt::format("its file's header states another type or shape than the manifest's {} {}",
                       dtype, Shape(shape).text());
  }
  return "";
}

}  // namespace

std::string header_difference(const CheckpointTensor& tensor, const SavedPiece& piece,
                              const SafetensorsReader& file) {
  return entry_difference(file.find(tensor.entry_name(piece.region)),
                          safetensors_name(tensor.dtype), piece.region.shape().dims());
}

CheckpointFiles::CheckpointFiles(fs::path folder, const CheckpointManifest& manifest)
    : folder_(std::move(folder)) {
  for (const CheckpointFile& file : manifest.tensor_files) {
    auto& stated = files_[file.name];
    stated = std::make_unique<File>();
    stated->stated = file;
  }
  for (const CheckpointTensor& tensor : manifest.tensors) {
    for (const SavedPiece& piece : tensor.pieces) {
      const Shape shape = piece.region.shape();
      files_.at(piece.file)
          ->entries.push_back({tensor.entry_name(piece.region),
                               tensor.label(),
                               std::string(safetensors_name(tensor.dtype)),
                               {shape.dims().begin(), shape.dims().end()}});
    }
  }
}

const SafetensorsReader& CheckpointFiles::at(const std::string& name) const {
  File& file = *files_.at(name);
  std::call_once(file.once, [&] { open(file); });
  return *file.reader;
}

void CheckpointFiles::open(File& file) const {
  SafetensorsReader reader(folder_ / file.stated.name);
  for (const File::Entry& entry : file.entries) {
    const std::string difference =
        entry_difference(reader.find(entry.name), entry.dtype, entry.shape);
    if (difference.empty()) continue;
    throw Error("{}: tensor {} cannot be read: {}; use another checkpoint", reader.path().string(),
                in_quotes(entry.tensor), difference);
  }
  const std::string found = hash_text(reader.header_hash());
  if (reader.entries().size() != file.entries.size() || found != file.stated.hash) {
    throw Error(
        "{} has a damaged header: its hash is {}, the manifest says {}; use another checkpoint",
        reader.path().string(), found, file.stated.hash);
  }
  file.reader.emplace(std::move(reader));
}

}  // namespace tessera
