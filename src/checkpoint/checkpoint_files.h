#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/checkpoint_manifest.h"
#include "checkpoint/safetensors_reader.h"

namespace tessera {

/// The tensor files of a checkpoint. A file is opened when it is first asked for: a rank that reads
/// some pieces opens the files that hold them.
class CheckpointFiles {
 public:
  CheckpointFiles(fs::path folder, const CheckpointManifest& manifest);

  /// The file, whose header is that which the manifest describes. Throws Error if it is not, or
  /// cannot be read. Any thread may call it.
  const SafetensorsReader& at(const std::string& name) const;

 private:
  struct File {
    CheckpointFile stated;
    /// What the manifest says that it holds.
    struct Entry {
      std::string name, tensor, dtype;
      std::vector<int64_t> shape;
    };
    std::vector<Entry> entries;
    std::once_flag once;
    std::optional<SafetensorsReader> reader;
  };

  void open(File& file) const;

  fs::path folder_;
  std::map<std::string, std::unique_ptr<File>> files_;
};

/// Returns how a piece's description in the manifest differs from the one in its file's header, or
/// an empty text if they agree.
std::string header_difference(const CheckpointTensor& tensor, const SavedPiece& piece,
                              const SafetensorsReader& file);

}  // namespace tessera
