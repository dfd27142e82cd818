#include "train/save_state.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "checkpoint/manifest_json.h"
#include "checkpoint/region_copy.h"
#include "train/save_shares.h"

namespace tessera {
namespace {

/// The part of a tensor that has the elements of a box.
const StatePart& part_with(const StateTensor& tensor, const Region& box) {
  const auto found = std::ranges::find_if(tensor.parts, [&](const StatePart& part) {
    return RegionCopy(box, part.piece.runs()).any(0, box.elements());
  });
  TESSERA_CHECK(found != tensor.parts.end(), "no part of {} has {}", tensor.name, box.text());
  return *found;
}

/// What this rank writes. The first one has tensors of which it writes nothing too: the manifest
/// has all of them in its order.
std::vector<GroupStream> own_streams(const StateToSave& save, const StateRanks& ranks) {
  std::vector<TensorOnRanks> tensors;
  for (const StateTensor& tensor : save.tensors) {
    tensors.push_back(
        {tensor.shards->distribution(tensor.parameter), dtype_size(tensor.dtype),
         [&tensor](int rank) { return tensor.shards->pieces(tensor.parameter, rank); }});
  }
  const auto shares = save_shares(ranks.mesh(), ranks.control.rank(), tensors);
  std::vector<GroupStream> streams;
  for (size_t i = 0; i < save.tensors.size(); ++i) {
    const StateTensor& tensor = save.tensors[i];
    GroupStream stream{tensor.group, tensor.name, tensor.dtype, tensor.shape, {}};
    for (const Region& box : shares[i]) {
      const StatePart& part = part_with(tensor, box);
      stream.pieces.push_back(piece_stream(box, part.tensor, part.piece.runs()));
    }
    if (ranks.control.first() || !stream.pieces.empty()) streams.push_back(std::move(stream));
  }
  return streams;
}

/// Throws Error unless this rank sees the folder that the first one has made.
void require_seen(const fs::path& folder) {
  if (is_folder(folder)) return;
  throw Error(
      "{} is not there, which rank 0 has made; run.directory must be in a file system that all "
      "ranks share",
      folder.string());
}

/// Writes this rank's files.
CheckpointManifest write_own(const fs::path& folder, const StateToSave& save,
                             const SaveOptions& options, const StateRanks& ranks) {
  const CheckpointWriter writer{.number = ranks.control.rank(), .count = ranks.mesh().ranks()};
  require_seen(folder);
  return write_part(folder, save.state.step, own_streams(save, ranks), writer, options);
}

}  // namespace

void save_state(const StateToSave& save, const SaveOptions& options, const StateRanks& ranks) {
  const RankControl& control = ranks.control;
  const fs::path folder = checkpoint_path(save.directory, save.state.step, FolderState::partial);
  std::optional<SharedSave> shared;
  control.on_first([&] { shared.emplace(save.directory, save.state.step); });
  CheckpointManifest own;
  control.together([&] { own = write_own(folder, save, options, ranks); });
  if (!control.several()) {
    shared->commit(save.state, std::move(own), save.carried);
    return;
  }
  const std::vector<std::string> parts =
      control.texts_for_first(manifest_text(own, "a part of " + folder.string()));
  control.on_first([&] {
    CheckpointManifest written;
    written.block_bytes = own.block_bytes;
    for (const std::string& part : parts) {
      add_part(written, parse_manifest(part, folder.string(), ManifestPart::one_writer));
    }
    shared->commit(save.state, std::move(written), save.carried);
  });
}

void require_savable(const fs::path& directory, const RankControl& control) {
  const fs::path folder = checkpoint_path(directory, 0, FolderState::partial);
  std::optional<SharedSave> attempt;  // its destructor removes what it made
  control.on_first([&] { attempt.emplace(directory, 0); });
  control.together([&] {
    require_seen(folder);
    require_writable(folder / fmt::format("rank-{:05}", control.rank()));
  });
}

}  // namespace tessera
