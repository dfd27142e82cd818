#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_manifest.h"
#include "checkpoint/checkpoint_state.h"
#include "checkpoint/partial_folder.h"
#include "checkpoint/safetensors_writer.h"

namespace tessera {

struct SaveOptions {
  /// The most bytes of tensors in one file. A group with more is split into several files. A larger
  /// piece has a file of its own.
  int64_t file_bytes = int64_t{4} << 30;
  /// The number of files written at once. It does not change the bytes written.
  int threads = 2;
  /// The bytes of a piece that have one hash: the least that a reader of a region must read. A
  /// multiple of 8.
  int64_t block_bytes = int64_t{16} << 20;
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

/// A piece of a tensor whose bytes are made while it is saved.
struct PieceStream {
  Region region;
  /// See TensorStream.
  std::function<void(const ByteSink&)> produce;
};

/// The pieces of a tensor of a group that one writer writes.
struct GroupStream {
  std::string group;
  std::string name;
  DType dtype = DType::f32;
  Shape shape;  ///< of the whole tensor
  std::vector<PieceStream> pieces;

  std::string label() const { return group + "/" + name; }
};

/// A tensor that one writer writes whole.
GroupStream whole_stream(const std::string& group, TensorStream stream);

/// A box of a tensor, of which `piece` has all elements; the piece has those of `runs`.
PieceStream piece_stream(const Region& box, const Tensor& piece, const PieceRuns& runs);

/// Does the same as save_checkpoint() with tensors that need not be in memory. If a stream throws,
/// the save ends with that exception.
fs::path save_streams(const fs::path& directory, const CheckpointState& state,
                      std::span<const GroupStream> tensors,
                      std::span<const CarriedFile> carried = {}, const SaveOptions& options = {});

/// One of those that write a checkpoint together.
struct CheckpointWriter {
  int number = 0;
  int count = 1;
};

/// A checkpoint that several write together. One of them makes this and commits it. Between the
/// two, each calls write_part() with its folder(). If this is destroyed before, the folder goes.
class SharedSave {
 public:
  /// Locks `directory`, removes what killed processes left in it, and makes an empty folder for the
  /// files. Throws Error as save_checkpoint() does.
  SharedSave(const fs::path& directory, int64_t step);

  const fs::path& folder() const { return partial_->path(); }

  /// Adds the files that no writer writes, and publishes the checkpoint. `written` has what all
  /// writers have written (see add_part()). Throws Error if one of their files is not there.
  fs::path commit(const CheckpointState& state, CheckpointManifest written,
                  std::span<const CarriedFile> carried);

 private:
  fs::path directory_;
  int64_t step_;
  CreatedFolders created_;
  CheckpointLock lock_;
  std::optional<PartialFolder> partial_;
};

/// Writes the tensor files of one writer into a checkpoint's folder, and returns what the manifest
/// is to say of them. Their names are those of the groups, with the writer's number if there are
/// several.
CheckpointManifest write_part(const fs::path& folder, int64_t step,
                              std::span<const GroupStream> tensors, const CheckpointWriter& writer,
                              const SaveOptions& options);

}  // namespace tessera
