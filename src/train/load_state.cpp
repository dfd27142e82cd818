#include "train/load_state.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/hash.h"
#include "checkpoint/checkpoint_manifest.h"

namespace tessera {
namespace {

/// Runs an action on every rank, in which they do not meet. Damage that one finds is thrown by all.
template <typename Action>
void read_together(const RankControl& control, Action&& action) {
  std::optional<std::string> damage;
  control.together([&] {
    try {
      action();
    } catch (const DamagedCheckpoint& damaged) {
      damage = damaged.what();
    }
  });
  damage = control.any_text(damage);
  if (damage) throw DamagedCheckpoint(*damage);
}

/// The axes along which ranks hold the same piece, of more than one rank.
std::vector<Axis> axes_of_copies(const Mesh& mesh, const Distribution& distribution) {
  std::vector<Axis> axes;
  for (const Axis axis : mesh.of_view(distribution.view())) {
    if (mesh.size(axis) > 1 && distribution.on(axis).same_on_ranks()) axes.push_back(axis);
  }
  return axes;
}

/// The ranks that hold this rank's piece of each tensor, and which of them reads it.
class Readers {
 public:
  Readers(std::span<const StateTensor> tensors, const StateRanks& ranks) {
    if (!ranks.control.several()) {
      readers_.resize(tensors.size());
      return;
    }
    RankGroups& groups = ranks.runtime.groups();
    std::map<Communicator*, std::vector<int64_t>> loads;  // bytes that each of the group reads
    for (const StateTensor& tensor : tensors) {
      const std::vector<Axis> axes =
          axes_of_copies(groups.mesh(), tensor.shards->distribution(tensor.parameter));
      if (axes.empty()) {
        readers_.push_back({});
        continue;
      }
      Communicator& group = groups.over(axes, kControlLane);
      std::vector<int64_t>& of_group = loads[&group];
      of_group.resize(static_cast<size_t>(group.size()));
      const auto least = std::ranges::min_element(of_group);
      for (const StatePart& part : tensor.parts) *least += part.tensor.bytes();
      readers_.push_back({&group, static_cast<int>(least - of_group.begin())});
    }
  }

  bool reads(size_t number) const {
    const Reader& reader = readers_[number];
    return reader.group == nullptr || reader.group->position() == reader.position;
  }

  /// Gives a tensor to those that have not read it.
  void broadcast(size_t number, const StateTensor& tensor) const {
    const Reader& reader = readers_[number];
    if (reader.group == nullptr) return;
    const bool reads = reader.group->position() == reader.position;
    for (const auto& [own, piece] : tensor.parts) {
      const bool on_device = own.accelerator() != nullptr;
      const Tensor host = reads || !on_device ? on_host(own) : Tensor(own.shape(), own.dtype());
      reader.group->broadcast("load " + tensor.name, reader.position, host);
      if (on_device && !reads) upload({host.raw(), static_cast<size_t>(host.bytes())}, own);
    }
  }

 private:
  struct Reader {
    Communicator* group = nullptr;  // none: no other rank has the same
    int position = 0;
  };
  std::vector<Reader> readers_;  // by tensor
};

}  // namespace

CheckpointReader open_together(const fs::path& path, const StateRanks& ranks) {
  std::optional<CheckpointReader> reader;
  read_together(ranks.control, [&] { reader.emplace(path); });
  require_same_checkpoint(*reader, ranks.control);
  return std::move(*reader);
}

void require_same_checkpoint(const CheckpointReader& reader, const RankControl& control) {
  const fs::path path = reader.path() / kCheckpointManifestName;
  uint64_t own = 0;
  control.together([&] { own = hash(read_file(path)); });
  const std::vector<uint64_t> all = control.gather(std::array{own});
  const auto other =
      std::ranges::find_if(all, [&](uint64_t of_rank) { return of_rank != all.front(); });
  if (other == all.end()) return;
  throw Error("{} sees another checkpoint at {} than {}; all ranks must see the same files",
              control.text(static_cast<int>(other - all.begin())), reader.path().string(),
              control.text(0));
}

void load_state(const CheckpointReader& reader, std::span<const StateTensor> tensors,
                const std::optional<std::string>& group, const StateRanks& ranks) {
  const Readers readers(tensors, ranks);
  std::vector<NamedTensor> wanted, own;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const StateTensor& tensor = tensors[i];
    // By name, type and shape; nothing is read into it.
    wanted.push_back(
        {tensor.group, tensor.name, Tensor(Shape{0}, tensor.dtype), TensorPiece(tensor.shape)});
    if (!readers.reads(i)) continue;
    for (const auto& [part, piece] : tensor.parts) {
      own.push_back({tensor.group, tensor.name, part, piece});
    }
  }
  read_together(ranks.control, [&] {
    reader.require_all(wanted, group ? &*group : nullptr);
    reader.load_each(own, ranks.runtime.threads());
  });
  for (size_t i = 0; i < tensors.size(); ++i) readers.broadcast(i, tensors[i]);
}

}  // namespace tessera
