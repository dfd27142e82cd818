#include "train/load_state.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/hash.h"
#include "checkpoint/checkpoint_manifest.h"

namespace tessera {
namespace {

/// Runs an action on every rank. The action must not communicate. If one rank finds damage, all
/// throw DamagedCheckpoint, so that all go on to the same older checkpoint.
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

/// Returns the axes with more than one rank along which ranks hold the same piece.
std::vector<Axis> axes_of_copies(const Mesh& mesh, const Distribution& distribution) {
  std::vector<Axis> axes;
  for (const Axis axis : mesh.axes_of(distribution.view())) {
    if (mesh.size(axis) > 1 && distribution.on(axis).same_on_ranks()) axes.push_back(axis);
  }
  return axes;
}

/// Decides which rank reads each tensor: of those of a pipeline stage that hold the same piece, the
/// one with the fewest bytes so far. All ranks decide the same without communication.
class Readers {
 public:
  Readers(std::span<const KeptTensor* const> tensors, const StateRanks& ranks) {
    if (!ranks.control.several()) {
      readers_.resize(tensors.size(), Reader{.reads = true});
      return;
    }
    RankGroups& groups = ranks.runtime.groups();
    std::map<Communicator*, std::vector<int64_t>> loads;  // bytes that each member reads
    for (const KeptTensor* tensor : tensors) {
      if (!tensor->memory.defined()) {
        readers_.push_back({.reads = false});  // another pipeline stage's
        continue;
      }
      const std::vector<Axis> axes = axes_of_copies(groups.mesh(), tensor->distribution);
      if (axes.empty()) {
        readers_.push_back({.reads = true});
        continue;
      }
      Communicator& group = groups.over(axes, kStateLane);
      std::vector<int64_t>& group_loads = loads[&group];
      group_loads.resize(static_cast<size_t>(group.size()));
      const auto least = std::ranges::min_element(group_loads);
      *least += tensor->memory.bytes();
      const auto position = static_cast<int>(least - group_loads.begin());
      readers_.push_back({group.position() == position, &group, position});
    }
  }

  /// Returns whether this rank reads a tensor.
  bool reads(size_t index) const { return readers_[index].reads; }

  /// Broadcasts a tensor to the ranks that have not read it.
  void broadcast(size_t index, const KeptTensor& tensor) const {
    const Reader& reader = readers_[index];
    if (reader.group == nullptr) return;
    tensor.for_each_piece([&](const TensorPiece& /*piece*/, const Tensor& own) {
      const bool on_device = own.accelerator() != nullptr;
      const Tensor host =
          reader.reads || !on_device ? on_host(own) : Tensor(own.shape(), own.dtype());
      reader.group->broadcast("load " + tensor.saved_name(), reader.position, host);
      if (on_device && !reader.reads) upload({host.raw(), static_cast<size_t>(host.bytes())}, own);
    });
  }

 private:
  struct Reader {
    bool reads = false;             // this rank
    Communicator* group = nullptr;  // the ranks that hold the same piece; null if no others do
    int position = 0;               // of the reader in the group
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
  const auto different =
      std::ranges::find_if(all, [&](uint64_t rank_hash) { return rank_hash != all.front(); });
  if (different == all.end()) return;
  throw Error("{} sees another checkpoint at {} than {}; all ranks must see the same files",
              control.text(static_cast<int>(different - all.begin())), reader.path().string(),
              control.text(0));
}

void load_state(const CheckpointReader& reader, std::span<const KeptTensor* const> tensors,
                const std::optional<std::string>& group, const StateRanks& ranks) {
  const Readers readers(tensors, ranks);
  std::vector<NamedTensor> wanted, own;  // what must be in the checkpoint; what this rank reads
  for (size_t i = 0; i < tensors.size(); ++i) {
    const KeptTensor& tensor = *tensors[i];
    const std::string group_name = tensor.saved_group(), name = tensor.saved_name();
    // The names, types and shapes alone; nothing is read into these.
    wanted.push_back(
        {group_name, name, Tensor(Shape{0}, tensor.dtype), TensorPiece(tensor.parameter->shape)});
    if (!readers.reads(i)) continue;
    tensor.for_each_piece([&](const TensorPiece& piece, const Tensor& memory) {
      own.push_back({group_name, name, memory, piece});
    });
  }
  read_together(ranks.control, [&] {
    reader.require_all(wanted, group ? &*group : nullptr);
    reader.load_each(own, ranks.runtime.threads());
  });
  for (size_t i = 0; i < tensors.size(); ++i) readers.broadcast(i, *tensors[i]);
}

}  // namespace tessera
