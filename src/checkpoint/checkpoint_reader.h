#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/checkpoint_manifest.h"
#include "checkpoint/checkpoint_state.h"
#include "checkpoint/safetensors_reader.h"

namespace tessera {

/// Thrown when a checkpoint cannot be read, or when its bytes differ from those that were saved. An
/// older checkpoint may replace it.
class DamagedCheckpoint : public Error {
 public:
  using Error::Error;
};

/// A complete checkpoint, opened for loading. Its manifest is read and compared with the headers of
/// its files when it is opened. Tensors are read, and their hashes checked, when they are loaded.
class CheckpointReader {
 public:
  /// Throws DamagedCheckpoint when the folder is not a complete checkpoint, when it is damaged, and
  /// when its files and its manifest disagree.
  explicit CheckpointReader(fs::path folder);

  const fs::path& path() const { return folder_; }
  const CheckpointManifest& manifest() const { return manifest_; }
  /// The state of the checkpoint, including the text of config.toml.
  const CheckpointState& state() const { return manifest_.state; }

  /// Returns the tensor of (group, name), or null.
  const CheckpointTensor* find(const std::string& group, const std::string& name) const;
  /// Throws DamagedCheckpoint when the tensor cannot be read, and when its bytes do not have the
  /// hash in the manifest.
  void check(const CheckpointTensor& tensor) const;
  /// Passes `count` bytes of a tensor, from byte `begin` on, to the sink (see SafetensorsReader).
  /// Does not check their hash; see check().
  void read_pieces(const CheckpointTensor& tensor, int64_t begin, int64_t count,
                   const PieceSink& sink) const;

  /// Returns the content of an extra file, with its hash checked. Throws Error when there is no
  /// file of this name, and DamagedCheckpoint when it is damaged.
  std::string extra_file(const std::string& name) const;

  /// Fills the tensor of (group, name). All of it is read and checked where only a piece is asked
  /// for. If the checkpoint stores a shorter floating type, such as
  /// the bf16 of an imported model, the elements are widened exactly. Throws Error naming the
  /// tensor when the checkpoint does not have it, and on any other difference in element type or
  /// shape. Throws DamagedCheckpoint when the tensor cannot be read, and when its bytes do not have
  /// the hash in the manifest (a flipped bit). The tensor's contents are then undefined.
  void load(const NamedTensor& target) const;

  /// Fills all targets. They must be all the tensors of the checkpoint. Throws Error naming every
  /// tensor that is missing, has another type or shape, or is left over; nothing is written then.
  void load_all(std::span<const NamedTensor> targets, int threads = 1) const;

  /// Does the same as load_all() for one group, for a program that needs only "parameters". The
  /// targets must be all the tensors of the group.
  void load_group(const std::string& group, std::span<const NamedTensor> targets,
                  int threads = 1) const;

 private:
  using Identity = std::pair<std::string, std::string>;  // group, name

  void check_headers() const;
  void check_hash(const CheckpointTensor& tensor, uint64_t found) const;
  std::string difference(const NamedTensor& target) const;
  void load_matching(std::span<const NamedTensor> targets, int threads,
                     const std::string* group) const;

  fs::path folder_;
  CheckpointManifest manifest_;
  std::map<std::string, SafetensorsReader> files_;
  std::map<Identity, const CheckpointTensor*> tensors_;
};

/// Returns how a tensor's description in the manifest differs from the one in its file's header, or
/// an empty text if they agree.
std::string header_difference(const CheckpointTensor& tensor, const SafetensorsReader& file);

}  // namespace tessera
