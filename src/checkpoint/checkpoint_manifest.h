#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "checkpoint/checkpoint_state.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace tessera {

/// A tensor of a checkpoint and the file that holds it.
struct CheckpointTensor {
  std::string group;
  std::string name;
  std::string file;  // one of the manifest's tensor_files
  DType dtype = DType::f32;
  Shape shape;
  std::string hash;  // XXH3 of its bytes, hexadecimal

  int64_t bytes() const { return shape.elements() * dtype_size(dtype); }
  std::string label() const { return group + "/" + name; }
};

/// A file of a checkpoint. Its name has no folder in it.
struct CheckpointFile {
  std::string name;
  int64_t bytes = 0;
  std::string hash;  // XXH3, hexadecimal: of the header of a .safetensors file, of the whole of
                     // another file
};

/// The content of manifest.json, which is the last file written into a checkpoint's folder:
///
///   {"xxh3": hash of this file's bytes after this line,
///    "format": "tessera-checkpoint", "version": 1, "created_by", "step",
///    "state": {NAME: number or text, ...},
///    "tensor_files": [{"name", "bytes", "header_xxh3"}, ...],
///    "extra_files": [{"name", "bytes", "xxh3"}, ...],
///    "tensors": [{"name", "group", "file", "dtype", "shape", "xxh3"}, ...]}
///
/// Together the hashes cover every byte of the checkpoint. A real number that JSON cannot hold is
/// written as {"real": "nan"}, {"real": "inf"} or {"real": "-inf"}.
struct CheckpointManifest {
  CheckpointState state;  // without `config`, which is the extra file config.toml
  std::vector<CheckpointFile> tensor_files;
  std::vector<CheckpointFile> extra_files;
  std::vector<CheckpointTensor> tensors;

  /// The number of bytes of all tensors.
  int64_t tensor_bytes() const;
};

inline constexpr std::string_view kCheckpointManifestName = "manifest.json";
inline constexpr std::string_view kCheckpointConfigName = "config.toml";

/// Writes folder/manifest.json atomically.
void write_checkpoint_manifest(const fs::path& folder, const CheckpointManifest& manifest);

/// Reads folder/manifest.json and checks that it is undamaged and consistent. Throws Error saying
/// what is wrong.
CheckpointManifest read_checkpoint_manifest(const fs::path& folder);

/// Checks that the manifest's files are in the folder and have the sizes it states. Does not read
/// the files. Throws Error naming the first wrong file.
void check_checkpoint_files(const fs::path& folder, const CheckpointManifest& manifest);

}  // namespace tessera
