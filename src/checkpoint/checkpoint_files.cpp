#include "checkpoint/checkpoint_files.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/strict_json.h"
#include "checkpoint/safetensors_types.h"

namespace tessera {

std::string header_difference(const CheckpointTensor& tensor, const SavedPiece& piece,
                              const SafetensorsReader& file) {
  const SafetensorsEntry* entry = file.find(tensor.entry_name(piece.region));
  if (entry == nullptr) return "its file's header does not name it";
  const std::string_view dtype = safetensors_name(tensor.dtype);
  const Shape shape = piece.region.shape();
  if (entry->dtype == dtype && std::ranges::equal(entry->shape, shape.dims())) return "";
  return fmt::format("its file's header states another type or shape than the manifest's {} {}",
                     dtype, shape.text());
}

CheckpointFiles::CheckpointFiles(fs::path folder, const CheckpointManifest& manifest)
    : folder_(std::move(folder)) {
  for (const CheckpointFile& file : manifest.tensor_files) {
    auto& added = files_[file.name];
    added = std::make_unique<File>();
    added->stated = &file;
  }
  for (const CheckpointTensor& tensor : manifest.tensors) {
    for (const SavedPiece& piece : tensor.pieces) {
      files_.at(piece.file)->pieces.emplace_back(&tensor, &piece);
    }
  }
}

const SafetensorsReader& CheckpointFiles::at(const std::string& name) const {
  File& file = *files_.at(name);
  std::call_once(file.once, [&] { open(file); });
  return *file.reader;
}

void CheckpointFiles::open(File& file) const {
  SafetensorsReader reader(folder_ / file.stated->name);
  for (const auto& [tensor, piece] : file.pieces) {
    const std::string difference = header_difference(*tensor, *piece, reader);
    if (difference.empty()) continue;
    throw Error("{}: tensor {} cannot be read: {}; use another checkpoint", reader.path().string(),
                in_quotes(tensor->label()), difference);
  }
  const std::string found = hash_text(reader.header_hash());
  if (reader.entries().size() != file.pieces.size() || found != file.stated->hash) {
    throw Error(
        "{} has a damaged header: its hash is {}, the manifest says {}; use another checkpoint",
        reader.path().string(), found, file.stated->hash);
  }
  file.reader.emplace(std::move(reader));
}

}  // namespace tessera
