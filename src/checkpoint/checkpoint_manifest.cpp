#include "checkpoint/checkpoint_manifest.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/hash_line.h"
#include "base/links.h"
#include "base/strict_json.h"

// manifest.json lists the files of a checkpoint, and for each tensor the regions into which it is
// divided, with the file and the hashes of each. Its second line holds the hash of the rest.
// add_part() joins the manifests of several writers. manifest_json.cpp has the JSON itself.

namespace tessera {

std::string CheckpointTensor::entry_name(const Region& region) const {
  return region.is_whole_of(shape) ? name : name + region.text();
}

std::string CheckpointTensor::text(const SavedPiece& piece) const {
  const bool whole = piece.region.is_whole_of(shape);
  return in_quotes(label()) + (whole ? "" : " (its piece " + piece.region.text() + ")");
}

int64_t CheckpointManifest::tensor_bytes() const {
  int64_t total = 0;
  for (const CheckpointTensor& tensor : tensors) total += tensor.bytes();
  return total;
}

void write_checkpoint_manifest(const fs::path& folder, const CheckpointManifest& manifest) {
  for (const CheckpointTensor& tensor : manifest.tensors) {
    std::vector<Region> regions;
    for (const SavedPiece& piece : tensor.pieces) regions.push_back(piece.region);
    const std::string problem = cover_problem(tensor.shape, regions);
    TESSERA_CHECK(problem.empty(), "tensor {}: {}", in_quotes(tensor.label()), problem);
  }
  const fs::path path = folder / kCheckpointManifestName;
  write_file(path, with_hash_line(manifest_text(manifest, path.string())));
}

CheckpointManifest read_checkpoint_manifest(const fs::path& folder) {
  const fs::path path = folder / kCheckpointManifestName;
  std::error_code code;
  if (!fs::is_regular_file(path, code)) {
    throw Error(
        "{} is not a complete checkpoint: it has no {}{}; give the folder of a checkpoint, "
        "such as step-00000100",
        folder.string(), kCheckpointManifestName, dangling_link_text(path));
  }
  const std::string text = read_file(path);
  if (!has_hash_line(text)) {
    throw Error(
        "{} is damaged or not of a tessera checkpoint: it does not start with its hash; "
        "use another checkpoint",
        path.string());
  }
  check_hash_line(text, path.string(), "use another checkpoint");
  return parse_manifest(text, path.string());
}

void add_part(CheckpointManifest& manifest, CheckpointManifest part) {
  std::map<std::pair<std::string, std::string>, size_t> known;
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    known.emplace(std::pair(manifest.tensors[i].group, manifest.tensors[i].name), i);
  }
  for (CheckpointFile& file : part.tensor_files) {
    const bool taken = std::ranges::find(manifest.tensor_files, file.name, &CheckpointFile::name) !=
                       manifest.tensor_files.end();
    TESSERA_CHECK(!taken, "two writers have written {}", in_quotes(file.name));
    manifest.tensor_files.push_back(std::move(file));
  }
  for (CheckpointTensor& tensor : part.tensors) {
    const auto found = known.find({tensor.group, tensor.name});
    if (found == known.end()) {
      manifest.tensors.push_back(std::move(tensor));
      continue;
    }
    CheckpointTensor& own = manifest.tensors[found->second];
    TESSERA_CHECK(own.dtype == tensor.dtype && own.shape == tensor.shape,
                  "one writer has {} as {} {}, another as {} {}", in_quotes(own.label()),
                  dtype_name(own.dtype), own.shape.text(), dtype_name(tensor.dtype),
                  tensor.shape.text());
    std::ranges::move(tensor.pieces, std::back_inserter(own.pieces));
  }
}

void check_checkpoint_files(const fs::path& folder, const CheckpointManifest& manifest) {
  for (const auto* list : {&manifest.tensor_files, &manifest.extra_files}) {
    for (const CheckpointFile& file : *list) {
      const fs::path path = folder / file.name;
      std::error_code code;
      if (!fs::is_regular_file(path, code)) {
        throw Error("{} is missing or not a file; use another checkpoint", path.string());
      }
      const auto size = fs::file_size(path, code);
      if (code) throw Error("cannot read {}: {}", path.string(), code.message());
      if (size != static_cast<uintmax_t>(file.bytes)) {
        throw Error("{} has {} bytes, expected {}; use another checkpoint", path.string(), size,
                    file.bytes);
      }
    }
  }
}

}  // namespace tessera
