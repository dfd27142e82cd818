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
  /// The most bytes of tensors in a file; a larger group is split, a larger piece has its own file.
  int64_t file_bytes = int64_t{4} << 30;
  /// The number of files written at once. It does not change the bytes written.
  int threads = 2;
  /// The bytes that have one hash, and so the least that a reader reads. A multiple of 8.
  int64_t block_bytes = int64_t{16} << 20;
};

/// Saves a checkpoint as directory/step-00000100 (see CheckpointManifest for its files) and returns
/// that path. The folder appears only when all its bytes are on the disk: a process killed at any
/// moment leaves the earlier checkpoints and nothing that looks like a new one. A checkpoint of the
/// same step is replaced; at every moment the old or the new one is complete, and
/// latest_checkpoint() finds it. Leftovers of killed processes are removed first.
///
/// The files of `carried` (the tokenizer, ...) are written beside the tensors. Throws Error on a
/// full disk, a folder that cannot be written, a pair (group, name) or a file name that occurs
/// twice. Nothing partial is left then, nor an empty `directory` that was not there before.
fs::path save_checkpoint(const fs::path& directory, const CheckpointState& state,
                         std::span<const NamedTensor> tensors,
                         std::span<const CarriedFile> carried = {},
                         const SaveOptions& options = {});

/// A tensor of a group, and the regions of it that one writer writes.
struct TensorToSave {
  /// A region whose bytes are made while it is saved (see TensorStream).
  struct Part {
    Region region;
    std::function<void(const ByteSink&)> produce;
  };

  std::string group;
  std::string name;
  DType dtype = DType::f32;
  Shape shape;  ///< the shape of the whole tensor
  std::vector<Part> parts;

  std::string label() const { return group + "/" + name; }
};

/// Returns a tensor that one writer writes as a whole.
TensorToSave whole_to_save(const std::string& group, TensorStream stream);

/// Returns a part that saves a region of a tensor. `memory` has the elements of `piece`, which
/// holds the whole region.
TensorToSave::Part part_to_save(const Region& region, const TensorPiece& piece,
                                const Tensor& memory);

/// Does the same as save_checkpoint() with tensors that need not be in memory. If a stream throws,
/// the save ends with that exception.
fs::path save_streams(const fs::path& directory, const CheckpointState& state,
                      std::span<const TensorToSave> tensors,
                      std::span<const CarriedFile> carried = {}, const SaveOptions& options = {});

/// One of the writers that write a checkpoint together.
struct CheckpointWriter {
  int number = 0;  ///< from 0 to count - 1
  int count = 1;   ///< the number of writers
};

/// A checkpoint that several writers write together. One of them constructs this and commits it.
/// In between, each calls write_part() with its folder(). Without commit(), the destructor removes
/// the folder.
class SharedSave {
 public:
  /// Locks `directory`, removes leftovers of killed processes, and makes an empty folder for the
  /// files. Throws Error as save_checkpoint() does.
  SharedSave(const fs::path& directory, int64_t step);

  const fs::path& folder() const { return partial_->path(); }

  /// Adds the files that no writer writes, and publishes the checkpoint. `written` has the
  /// entries of all writers (see add_part()). Throws Error if one of their files is not there.
  fs::path commit(const CheckpointState& state, CheckpointManifest written,
                  std::span<const CarriedFile> carried);

 private:
  fs::path directory_;
  int64_t step_;
  CreatedFolders created_;
  CheckpointLock lock_;
  std::optional<PartialFolder> partial_;
};

/// Writes the tensor files of one writer into a checkpoint's folder. Returns their entries in the
/// manifest. The files are named after the groups, with the writer's number if there are several.
CheckpointManifest write_part(const fs::path& folder, int64_t step,
                              std::span<const TensorToSave> tensors, const CheckpointWriter& writer,
                              const SaveOptions& options);

}  // namespace tessera
