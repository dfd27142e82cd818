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

/// A complete checkpoint, opened for loading. The constructor reads the manifest and config.toml,
/// and compares the sizes of all files. A tensor is read, and its hashes checked, at its use.
class CheckpointReader {
 public:
  /// Throws DamagedCheckpoint when the folder is not a complete checkpoint, when its manifest or
  /// config.toml is damaged, and when a file is not of the size that the manifest states.
  explicit CheckpointReader(fs::path folder);

  const fs::path& path() const { return folder_; }
  const CheckpointManifest& manifest() const { return manifest_; }
  /// Returns the state of the checkpoint, including the text of config.toml.
  const CheckpointState& state() const { return manifest_.state; }

  /// Returns the tensor of (group, name), or null.
  const CheckpointTensor* find(const std::string& group, const std::string& name) const;
  /// Reads a whole tensor. Throws DamagedCheckpoint when it cannot be read, and when its bytes do
  /// not have the hashes in the manifest.
  void check(const CheckpointTensor& tensor) const;
  /// Passes `count` bytes of the whole tensor, from byte `begin` on, to the sink, joined from the
  /// stored pieces. `begin` is the first byte of an element. The sink gets kReadChunk bytes each
  /// time but the last. Does not check hashes; see check(). Throws Error when reading fails.
  void read_chunks(const CheckpointTensor& tensor, int64_t begin, int64_t count,
                   const ChunkSink& sink) const;

  bool has_file(const std::string& name) const;  ///< whether an extra file has this name
  /// Returns the content of an extra file, with its hash checked. Throws Error when there is no
  /// file of this name, and DamagedCheckpoint when it is damaged.
  std::string extra_file(const std::string& name) const;

  /// Fills `target`, a tensor of the checkpoint or a piece of one. Reads and checks only the blocks
  /// that hold its elements (see SaveOptions::block_bytes). A shorter floating type in the
  /// checkpoint, such as the bf16 of an imported model, is widened exactly. Throws Error when the
  /// checkpoint lacks the tensor, or on any other difference in type or shape. Throws
  /// DamagedCheckpoint when reading fails or a block does not have the hash in the manifest; the
  /// contents of `target` are then undefined.
  void load(const NamedTensor& target) const;

  /// Fills each target as load() does, on at most `threads` threads.
  void load_each(std::span<const NamedTensor> targets, int threads = 1) const;

  /// Throws Error if the targets are not all the tensors of a group, or of the checkpoint if
  /// `group` is null. The error names the first ten tensors that are missing, left over, or of
  /// another type or shape. Reads nothing.
  void require_all(std::span<const NamedTensor> targets, const std::string* group = nullptr) const;

 private:
  using Identity = std::pair<std::string, std::string>;  // group, name

  const SafetensorsReader& file_of(const SavedPiece& piece) const;
  void check_block(const CheckpointTensor& tensor, const SavedPiece& piece, size_t block,
                   uint64_t found) const;
  std::string difference(const NamedTensor& target) const;
  void load_piece(const CheckpointTensor& tensor, const SavedPiece& piece,
                  const TensorPiece& wanted, const Tensor& to) const;
  void join_pieces(const CheckpointTensor& tensor, int64_t begin, std::span<std::byte> to) const;

  fs::path folder_;
  CheckpointManifest manifest_;
  std::optional<CheckpointFiles> files_;
  std::map<Identity, const CheckpointTensor*> tensors_;
};

}  // namespace tessera
