#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_manifest.h"
#include "checkpoint/checkpoint_state.h"
#include "checkpoint/safetensors_reader.h"

namespace tessera {

/// Thrown when a checkpoint cannot be read, or when its bytes differ from those that were saved.
/// The caller may load an older checkpoint instead.
class DamagedCheckpoint : public Error {
 public:
  using Error::Error;
};

/// Thrown when a checkpoint was removed while it was read.
class RemovedCheckpoint : public Error {
 public:
  explicit RemovedCheckpoint(const fs::path& checkpoint);
};

/// A complete checkpoint, opened for loading. The constructor reads its manifest and compares the
/// sizes of its files. Tensors are read, and their hashes checked, when they are loaded.
class CheckpointReader {
 public:
  /// Throws DamagedCheckpoint when the folder is not a complete checkpoint, and when its manifest
  /// is damaged or a file is not of the size that it states.
  explicit CheckpointReader(fs::path folder);

  const fs::path& path() const { return folder_; }
  const CheckpointManifest& manifest() const { return manifest_; }
  /// Returns the state of the checkpoint, including the text of config.toml.
  const CheckpointState& state() const { return manifest_.state; }

  /// Returns the tensor of (group, name), or null.
  const CheckpointTensor* find(const std::string& group, const std::string& name) const;
  /// Throws DamagedCheckpoint when the tensor cannot be read, and when its bytes do not have the
  /// hashes in the manifest.
  void check(const CheckpointTensor& tensor) const;
  /// Passes `count` bytes of the whole tensor, from byte `begin` on, to the sink, joined from the
  /// stored pieces. The sink gets whole elements, and kReadPiece bytes each time but the last. Does
  /// not check their hash; see check(). Throws Error when they cannot be read.
  void read_pieces(const CheckpointTensor& tensor, int64_t begin, int64_t count,
                   const PieceSink& sink) const;

  /// Returns the content of an extra file, with its hash checked. Throws Error when there is no
  /// file of this name, and DamagedCheckpoint when it is damaged.
  std::string extra_file(const std::string& name) const;

  /// Fills the tensor of (group, name), or the piece of it that `target` names. Reads and checks
  /// only the blocks that hold its elements (see SaveOptions::block_bytes). A shorter floating type
  /// in the checkpoint, such as the bf16 of an imported model, is widened exactly. Throws Error
  /// naming the tensor when the checkpoint lacks it, or on any other difference in type or shape;
  /// DamagedCheckpoint when it cannot be read or bytes do not have the hash in the manifest. The
  /// tensor's contents are then undefined.
  void load(const NamedTensor& target) const;

  /// Fills all targets. They must be all the tensors of the checkpoint. Throws Error naming every
  /// tensor that is missing, has another type or shape, or is left over; nothing is written then.
  void load_all(std::span<const NamedTensor> targets, int threads = 1) const;

  /// Does the same for one group, of which the targets must be all tensors.
  void load_group(const std::string& group, std::span<const NamedTensor> targets,
                  int threads = 1) const;

  /// Fills each target as load() does, on so many threads.
  void load_each(std::span<const NamedTensor> targets, int threads = 1) const;

  /// Throws Error, as load_all() does, if the targets are not all the tensors of a group, or of the
  /// checkpoint if `group` is null. Reads nothing.
  void require_all(std::span<const NamedTensor> targets, const std::string* group = nullptr) const;

 private:
  using Identity = std::pair<std::string, std::string>;  // group, name

  const SafetensorsReader& file_of(const SavedPiece& piece) const;
  void check_block(const CheckpointTensor& tensor, const SavedPiece& piece, size_t block,
                   uint64_t found) const;
  std::string difference(const NamedTensor& target) const;
  void load_piece(const CheckpointTensor& tensor, const SavedPiece& piece,
                  const TensorPiece& wanted, const Tensor& to) const;
  void put_together(const CheckpointTensor& tensor, int64_t begin, std::span<std::byte> to) const;

  fs::path folder_;
  CheckpointManifest manifest_;
  std::optional<CheckpointFiles> files_;
  std::map<Identity, const CheckpointTensor*> tensors_;
};

}  // namespace tessera
