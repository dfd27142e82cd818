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

// Two ways to save a checkpoint:
//   save_streams()               one writer; the tensors' bytes are made while they are written;
//   SharedSave and write_part()  several writers, such as ranks, that each write their own part.
// A tensor is stored as one or more pieces, each a region of it. The tensors of one group, such as
// "optimizer", have files of their own.

/// The options of save_streams() and write_part().
struct SaveOptions {
  /// The most bytes of tensors in one file. A group that has more is split over several files. A
  /// single piece that has more gets a file of its own.
  int64_t file_bytes = int64_t{4} << 30;
  /// The number of files written at once. It does not change the bytes written.
  int threads = 2;
  /// The size of the blocks that are hashed one by one and read as a whole. A multiple of 8.
  int64_t block_bytes = int64_t{16} << 20;
};

/// A tensor of a group, with the regions of it that one writer saves.
struct TensorToSave {
  /// A region whose bytes are made while it is saved (see TensorStream).
  struct Piece {
    Region region;
    std::function<void(const ByteSink&)> produce;
  };

  std::string group;
  std::string name;
  DType dtype = DType::f32;
  Shape shape;  ///< the shape of the whole tensor
  std::vector<Piece> pieces;

  std::string label() const { return group + "/" + name; }
};

/// Returns a tensor that one writer writes as a whole.
TensorToSave whole_to_save(const std::string& group, TensorStream stream);

/// Returns a piece that saves a region of a tensor. `memory` holds the elements of `held`, which
/// include the whole region.
TensorToSave::Piece piece_to_save(const Region& region, const TensorPiece& held,
                                  const Tensor& memory);

/// Saves a checkpoint as directory/step-00000100 (see CheckpointManifest for its files) and returns
/// that path. The folder appears only when all its bytes are on the disk: a process killed at any
/// moment leaves the earlier checkpoints and nothing that looks like a new one. A checkpoint of the
/// same step is replaced; at every moment the old or the new one is complete, and
/// latest_checkpoint() finds it. Leftovers of killed processes are removed first.
///
/// The files of `carried` (the tokenizer, ...) are written beside the tensors. Throws Error on a
/// full disk, a folder that cannot be written, a pair (group, name) or a file name that occurs
/// twice. Nothing partial is left then, nor an empty `directory` that was not there before.
/// If the `produce` of a piece throws, nothing is saved and the exception is passed on.
fs::path save_streams(const fs::path& directory, const CheckpointState& state,
                      std::span<const TensorToSave> tensors,
                      std::span<const CarriedFile> carried = {}, const SaveOptions& options = {});

/// One of the writers that write a checkpoint together.
struct CheckpointWriter {
  int number = 0;  ///< from 0 to count - 1
  int count = 1;   ///< the number of writers
};

/// A checkpoint that several writers write together. One of them constructs it. Then every writer
/// calls write_part() with its folder(), and the one that constructed it joins the results and
/// calls commit(). Without commit(), the destructor removes the folder.
class SharedSave {
 public:
  /// Locks `directory`, removes leftovers of killed processes, and makes an empty folder for the
  /// files. Throws Error as save_streams() does.
  SharedSave(const fs::path& directory, int64_t step);

  const fs::path& folder() const { return partial_->path(); }

  /// Adds config.toml, the carried files and the manifest, and gives the folder its name. `written`
  /// joins what write_part() returned to each writer (see add_part()). Throws Error if one of their
  /// files is missing or has another size, and as save_streams() does.
  fs::path commit(const CheckpointState& state, CheckpointManifest written,
                  std::span<const CarriedFile> carried);

 private:
  fs::path directory_;
  int64_t step_;
  CreatedFolders created_;
  CheckpointLock lock_;
  std::optional<PartialFolder> partial_;
};

/// Writes the tensor files of one writer into a checkpoint's folder. Returns a manifest of these
/// files alone. They are named after the groups, with the writer's number if there are several.
CheckpointManifest write_part(const fs::path& folder, int64_t step,
                              std::span<const TensorToSave> tensors, const CheckpointWriter& writer,
                              const SaveOptions& options);

}  // namespace tessera
