// How all ranks save a checkpoint together. The first rank makes the partial folder. Each rank
// writes its share of every tensor into files of its own there, and gives the first rank their
// manifest. The first rank joins the manifests and completes the checkpoint (SharedSave::commit()).
//
// A share is a list of regions, which are boxes of consecutive elements of each dim. Every rank
// works out the shares of all ranks from the layout: held_pieces() lists each piece with the ranks
// that hold it, cut() divides large ones among these, and each goes to its least loaded holder.
//
// For example, four ranks are 2 data × 2 tensor, and the tensor axis halves one large matrix:
//
// - Without shard.optimizer each half has two holders. They divide it so that both write the same
//   number of bytes: each rank writes a quarter of the matrix.
// - With shard.optimizer = "all" each of the four ranks has its own run of elements, which no other
//   rank has. It writes all of it, as up to three boxes (boxes_of_run()).

#include "train/save_state.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "comm/rank_sets.h"

namespace tessera {
namespace {

constexpr int64_t kCutsOfAShare = 4;  // pieces larger than a share divided by this are cut

/// A piece of a tensor, and the ranks that hold it.
struct HeldPiece {
  size_t tensor;
  RankSet ranks;
  TensorPiece piece;
  int64_t element_bytes;

  int64_t bytes() const { return piece.shape().elements() * element_bytes; }
};

/// Returns the pieces of all tensors, each with all ranks that hold it. Of several pipeline stages
/// that have a tensor, the first writes it.
std::vector<HeldPiece> held_pieces(std::span<const KeptTensor* const> tensors,
                                   const StateShard& shard) {
  RankShards shards(shard);
  std::vector<HeldPiece> pieces;
  for (size_t index = 0; index < tensors.size(); ++index) {
    const KeptTensor& tensor = *tensors[index];
    for (const RankSet& ranks : sets_with_equal_parts(shard.mesh(), tensor.distribution)) {
      if (!shard.on_first_stage(tensor.index, ranks.front())) continue;
      for (TensorPiece& piece : shards.shard_of(ranks.front()).pieces(tensor.index, tensor.kind)) {
        pieces.push_back({index, ranks, std::move(piece), dtype_size(tensor.dtype)});
      }
    }
  }
  return pieces;
}

/// Cuts a piece into at most `parts` nearly equal pieces, along one dim.
std::vector<HeldPiece> cut(const HeldPiece& held, int64_t parts) {
  const Shape& shape = held.piece.shape();
  if (shape.rank() == 0 || parts < 2) return {held};
  int dim = 0;
  while (dim < shape.rank() && shape[dim] < parts) ++dim;
  if (dim == shape.rank()) {
    dim = static_cast<int>(std::ranges::max_element(shape.dims()) - shape.dims().begin());
  }
  const int64_t length = shape[dim];
  parts = std::min(parts, length);
  std::vector<ElementRun> dims;
  for (const int64_t extent : shape.dims()) dims.push_back({0, extent});
  std::vector<HeldPiece> result;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = i * length / parts;
    dims[static_cast<size_t>(dim)] = {begin, (i + 1) * length / parts - begin};
    result.push_back({held.tensor, held.ranks, held.piece.part(dims), held.element_bytes});
  }
  return result;
}

/// Returns a region of a tensor together with the memory of its elements.
TensorToSave::Piece saved_part(const KeptTensor& tensor, const Region& region) {
  std::optional<TensorToSave::Piece> part;
  tensor.for_each_piece([&](const TensorPiece& piece, const Tensor& memory) {
    if (!part && any_common(region, piece, 0, region.elements())) {
      part = piece_to_save(region, piece, memory);
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
    if (!ranks.control.is_first() && shares[i].empty()) continue;
    const KeptTensor& tensor = *save.tensors[i];
    own.push_back(
        {tensor.saved_group(), tensor.saved_name(), tensor.dtype, tensor.parameter->shape, {}});
    for (const Region& region : shares[i]) own.back().pieces.push_back(saved_part(tensor, region));
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

std::vector<std::vector<Region>> save_shares(std::span<const KeptTensor* const> tensors,
                                             const StateShard& shard, int64_t least_cut) {
  const int all_ranks = shard.mesh().ranks();
  const std::vector<HeldPiece> held = held_pieces(tensors, shard);
  int64_t bytes = 0;
  for (const HeldPiece& piece : held) bytes += piece.bytes();
  const int64_t limit = std::max(least_cut, bytes / all_ranks / kCutsOfAShare);
  std::vector<HeldPiece> pieces;
  for (const HeldPiece& piece : held) {
    const auto holders = static_cast<int64_t>(piece.ranks.size());
    const int64_t parts = std::min(holders, (piece.bytes() + limit - 1) / limit);
    std::ranges::move(cut(piece, parts), std::back_inserter(pieces));
  }
  // Each piece, the largest first, goes to the rank with the least so far (greedy scheduling).
  std::ranges::stable_sort(pieces, std::ranges::greater(), &HeldPiece::bytes);
  std::vector<int64_t> loads(static_cast<size_t>(all_ranks));
  std::vector<std::vector<Region>> own(tensors.size());
  for (const HeldPiece& held_piece : pieces) {
    const int writer = *std::ranges::min_element(
        held_piece.ranks, {}, [&](int candidate) { return loads[static_cast<size_t>(candidate)]; });
    loads[static_cast<size_t>(writer)] += held_piece.bytes();
    if (writer != shard.rank()) continue;
    std::ranges::move(regions_of(held_piece.piece), std::back_inserter(own[held_piece.tensor]));
  }
  return own;
}

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
