#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/file.h"
#include "checkpoint/checkpoint_state.h"
#include "checkpoint/safetensors_writer.h"

namespace tessera {

struct SaveOptions {
  /// The most bytes of tensors in one file. A group with more is split into several files. A larger
  /// tensor has a file of its own.
  int64_t file_bytes = int64_t{4} << 30;
  /// The number of files written at once. It does not change the bytes written.
  int threads = 2;
};

/// Saves a checkpoint as directory/step-00000100 (see CheckpointManifest for its files) and returns
/// that path. The folder appears only when all its bytes are on the disk: a process killed at any
/// moment leaves the earlier checkpoints and nothing that looks like a new one. A checkpoint of the
/// same step is replaced. At every moment either the old or the new one is complete on the disk,
/// and latest_checkpoint() finds it. Leftovers of killed processes are removed first.
///
/// The tensors of a group are written in the order given, but those with wider elements first. The
/// files of `carried` (the tokenizer, ...) are written beside them. Throws Error on a full disk, a
/// folder that cannot be written, a pair (group, name) that occurs twice, and a file name that is
/// used twice. Nothing partial is left then, nor an empty `directory` that was not there before.
fs::path save_checkpoint(const fs::path& directory, const CheckpointState& state,
                         std::span<const NamedTensor> tensors,
                         std::span<const CarriedFile> carried = {},
                         const SaveOptions& options = {});

/// A tensor of a group whose bytes are made while it is saved.
struct GroupStream {
  std::string group;
  TensorStream stream;

  std::string label() const { return group + "/" + stream.name; }
};

/// Does the same as save_checkpoint() with tensors that need not be in memory. If a stream throws,
/// the save ends with that exception.
fs::path save_streams(const fs::path& directory, const CheckpointState& state,
                      std::span<const GroupStream> tensors,
                      std::span<const CarriedFile> carried = {}, const SaveOptions& options = {});

}  // namespace tessera
