#include "train/save_state.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "checkpoint/manifest_json.h"
#include "train/save_shares.h"
#include "train/saved_names.h"

namespace tessera {
namespace {

/// Returns a region of a tensor together with the memory of its elements.
TensorToSave::Part saved_part(const KeptTensor& tensor, const Region& region) {
  std::optional<TensorToSave::Part> part;
  tensor.for_each_piece([&](const TensorPiece& piece, const Tensor& memory) {
    if (!part && any_common(region, piece, 0, region.elements())) {
      part = part_to_save(region, piece, memory);
    }
  });
  TESSERA_CHECK(part, "no piece of {} has {}", tensor.name(), region.text());
  return *part;
}

/// Returns the tensors that this rank writes. On the first rank the list includes tensors of which
/// it writes nothing: the manifest lists all tensors in this order.
std::vector<TensorToSave> own_tensors(const StateToSave& save, const StateRanks& ranks) {
  const auto shares = save_shares(save.tensors, save.shard);
  std::vector<TensorToSave> own;
  for (size_t i = 0; i < save.tensors.size(); ++i) {
    if (!ranks.control.first() && shares[i].empty()) continue;
    const KeptTensor& tensor = *save.tensors[i];
    own.push_back(
        {saved_group(tensor), saved_name(tensor), tensor.dtype, tensor.parameter->shape, {}});
    for (const Region& region : shares[i]) own.back().parts.push_back(saved_part(tensor, region));
  }
  return own;
}

/// Throws Error unless this rank sees the folder that the first rank has made.
void require_seen(const fs::path& folder) {
  if (is_folder(folder)) return;
  throw Error(
      "{} is not there, which rank 0 has made; run.directory must be in a file system that all "
      "ranks share",
      folder.string());
}

/// Writes this rank's files and returns their manifest.
CheckpointManifest write_own(const fs::path& folder, const StateToSave& save,
                             const SaveOptions& options, const StateRanks& ranks) {
  const CheckpointWriter writer{.number = ranks.control.rank(), .count = ranks.mesh().ranks()};
  require_seen(folder);
  return write_part(folder, save.state.step, own_tensors(save, ranks), writer, options);
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
