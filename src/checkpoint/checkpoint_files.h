#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "checkpoint/checkpoint_manifest.h"
#include "checkpoint/safetensors_reader.h"

namespace tessera {

/// The safetensors files of a checkpoint. A file is opened at its first use, so a rank that reads
/// some pieces opens only the files that hold them.
class CheckpointFiles {
 public:
  /// The manifest must outlive this object.
  CheckpointFiles(fs::path folder, const CheckpointManifest& manifest);

  /// Returns the file of that name, one of the manifest's tensor_files. Throws Error if it cannot
  /// be read, or if its header is not the one that the manifest describes. Thread-safe.
  const SafetensorsReader& at(const std::string& name) const;

 private:
  struct File {
    // As the manifest states them:
    const CheckpointFile* stated;
    std::vector<std::pair<const CheckpointTensor*, const SavedPiece*>> pieces;
    std::once_flag once;
    std::optional<SafetensorsReader> reader;
  };

  void open(File& file) const;

  fs::path folder_;
  std::map<std::string, std::unique_ptr<File>> files_;
};

/// Returns how a file's header differs from the manifest in the entry of a piece; empty if equal.
std::string header_difference(const CheckpointTensor& tensor, const SavedPiece& piece,
                              const SafetensorsReader& file);

}  // namespace tessera
