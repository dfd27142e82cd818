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

/// A checkpoint that cannot be read, or whose bytes are not those that were saved. An older one may
/// do in its place.
class DamagedCheckpoint : public Error {
 public:
  using Error::Error;
};

/// A complete checkpoint, opened for loading: its manifest is read and compared with the headers of
/// its files; tensors are read, and their hashes checked, as they are loaded.
class CheckpointReader {
 public:
  /// Throws DamagedCheckpoint when the folder is not a complete checkpoint, when it is damaged, or
  /// when its files and its manifest disagree.
  explicit CheckpointReader(fs::path folder);

  const fs::path& path() const { return folder_; }
  const CheckpointManifest& manifest() const { return manifest_; }
  /// With the text of config.toml.
  const CheckpointState& state() const { return manifest_.state; }

  /// The tensor of (group, name), or nothing.
  const CheckpointTensor* find(const std::string& group, const std::string& name) const;
  /// Throws DamagedCheckpoint when the tensor cannot be read, or when its bytes do not have the
  /// hash of the manifest.
  void check(const CheckpointTensor& tensor) const;
  /// Gives the sink `count` bytes of a tensor from its byte `begin` on; see SafetensorsReader.
  /// Their hash is not checked; see check().
  void read_pieces(const CheckpointTensor& tensor, int64_t begin, int64_t count,
                   const PieceSink& sink) const;

  /// What a file carried along holds, its hash checked. Throws Error when there is none of this
  /// name and DamagedCheckpoint when it is damaged.
  std::string extra_file(const std::string& name) const;

  /// Fills the tensor of (group, name). A shorter floating type of the checkpoint, such as the bf16
  /// of an imported model, is widened exactly. Throws Error naming the tensor when the checkpoint
  /// has none or when its element type or shape differs otherwise, and DamagedCheckpoint when it
  /// cannot be read or its bytes do not have the hash of the manifest (a flipped bit); then the
  /// tensor's contents are undefined.
  void load(const NamedTensor& target) const;

  /// Fills all targets and checks that they are all that the checkpoint holds. Throws Error naming
  /// every tensor that is missing, of another type or shape, or left over; nothing is written then.
  void load_all(std::span<const NamedTensor> targets, int threads = 1) const;

  /// load_all for one group, for a program that needs the "parameters" alone; targets are all of
  /// it.
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

/// What differs between a tensor as the manifest has it and as its file's header has it; empty when
/// nothing does.
std::string header_difference(const CheckpointTensor& tensor, const SafetensorsReader& file);

}  // namespace tessera
