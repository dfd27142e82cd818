#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/file.h"
#include "checkpoint/checkpoint_state.h"
#include "checkpoint/safetensors_writer.h"

namespace tessera {

struct SaveOptions {
  /// A group's tensors are split over several files where they exceed this; a larger tensor has a
  /// file of its own.
  int64_t file_bytes = int64_t{4} << 30;
  /// Files written at once. The bytes do not depend on it.
  int threads = 2;
};

/// Saves a checkpoint as directory/step-00000100 (see CheckpointManifest for its files) and returns
/// that path. It appears when all its bytes are on the disk and not before: a process killed at any
/// moment leaves the earlier checkpoints and nothing that looks like a new one. A checkpoint of the
/// same step is replaced; at every moment either the old or the new one is complete on the disk and
/// found by latest_checkpoint(). What killed processes left behind is removed first.
///
/// Tensors of a group are written in the order given, wider elements first. `carried` (the
/// tokenizer, ...) are written beside them. Throws Error on a full disk, an unwritable
/// folder, an equal pair (group, name) or a file name taken twice; nothing partial is left then,
/// nor an empty `directory` that was not there.
fs::path save_checkpoint(const fs::path& directory, const CheckpointState& state,
                         std::span<const NamedTensor> tensors,
                         std::span<const CarriedFile> carried = {},
                         const SaveOptions& options = {});

/// A tensor of a group that is made while it is saved.
struct GroupStream {
  std::string group;
  TensorStream stream;

  std::string label() const { return group + "/" + stream.name; }
};

/// save_checkpoint() of tensors that need not be in memory. What a stream throws ends the save.
fs::path save_streams(const fs::path& directory, const CheckpointState& state,
                      std::span<const GroupStream> tensors,
                      std::span<const CarriedFile> carried = {}, const SaveOptions& options = {});

}  // namespace tessera
