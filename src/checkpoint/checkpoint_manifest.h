#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "checkpoint/block_hash.h"
#include "checkpoint/checkpoint_state.h"
#include "checkpoint/region.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace tessera {

/// A piece of a tensor, which is stored in one file of the checkpoint.
struct SavedPiece {
  std::string file;  ///< one of the manifest's tensor_files
  Region region;
  std::vector<uint64_t> hashes;  ///< XXH3 of each block of its bytes
};

/// A tensor of a checkpoint. Each element is in exactly one piece (but see ManifestPart).
struct CheckpointTensor {
  std::string group;
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::vector<SavedPiece> pieces;

  int64_t bytes() const { return shape.elements() * dtype_size(dtype); }
  std::string label() const { return group + "/" + name; }
  /// Returns the name of a piece in its file: the tensor's if the piece is the whole tensor,
  /// otherwise "NAME[0:4, 8:16]".
  std::string entry_name(const Region& region) const;
  /// Returns "'GROUP/NAME'" for messages, with the region if the piece is not the whole tensor.
  std::string text(const SavedPiece& piece) const;
};

/// A file of a checkpoint. Its name has no folder in it.
struct CheckpointFile {
  std::string name;
  int64_t bytes = 0;
  std::string hash;  ///< XXH3 in hexadecimal, of a .safetensors file's header or any other's bytes
};

/// The content of manifest.json, which is the last file written into a checkpoint's folder (see
/// docs/checkpoints.md). Its hashes together cover every byte of the checkpoint's other files.
struct CheckpointManifest {
  CheckpointState state;  // without `config`, which is in the extra file config.toml
  std::vector<CheckpointFile> tensor_files;
  std::vector<CheckpointFile> extra_files;
  int64_t block_bytes = kOneBlock;  // the size of the blocks of a piece that are hashed one by one
  std::vector<CheckpointTensor> tensors;

  int64_t tensor_bytes() const;
};

inline constexpr std::string_view kCheckpointManifestName = "manifest.json";
inline constexpr std::string_view kCheckpointConfigName = "config.toml";

/// Writes folder/manifest.json atomically. Throws InternalError if pieces do not cover their
/// tensor.
void write_checkpoint_manifest(const fs::path& folder, const CheckpointManifest& manifest);

/// Reads folder/manifest.json and throws Error unless it is undamaged and consistent.
CheckpointManifest read_checkpoint_manifest(const fs::path& folder);

/// Returns the manifest as JSON of format version 2, without the line of its hash. Throws Error,
/// which begins with `origin`, if a name or a value is not UTF-8.
std::string manifest_text(const CheckpointManifest& manifest, const std::string& origin);

/// The part of a checkpoint that a manifest describes.
enum class ManifestPart {
  whole,       ///< all of a checkpoint: the pieces of each tensor cover it
  one_writer,  ///< only the pieces that one of several writers has written
};

/// Returns the manifest in a text of format version 1 or 2. Throws Error, which begins with
/// `origin` and says what is wrong.
CheckpointManifest parse_manifest(const std::string& text, const std::string& origin,
                                  ManifestPart part = ManifestPart::whole);

/// Adds the files and pieces that another writer of the same checkpoint has written. Appends the
/// pieces of a tensor that is known by group and name, and adds tensors that are not known. Throws
/// InternalError if the writers disagree about a tensor, or wrote a file of the same name.
void add_part(CheckpointManifest& manifest, CheckpointManifest part);

/// Checks that the manifest's files are in the folder and have the sizes that it states. Does not
/// read the files. Throws Error that names the first wrong file.
void check_checkpoint_files(const fs::path& folder, const CheckpointManifest& manifest);

}  // namespace tessera
