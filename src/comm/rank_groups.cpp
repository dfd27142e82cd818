#include "comm/rank_groups.h"

#include <numeric>

#include <fmt/format.h>

#include "comm/connect_devices.h"

namespace tessera {

Communicator& RankGroups::over(std::span<const Axis> axes, std::string_view lane,
                               std::span<const int> stages) {
  return find_or_make(mesh_.group(rank_, axes, stages), lane);
}

Communicator& RankGroups::world(std::string_view lane) {
  std::vector<int> ranks(static_cast<size_t>(mesh_.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return find_or_make(std::move(ranks), lane);
}

void RankGroups::connect_posts(std::span<const Axis> axes, std::string_view lane,
                               std::span<const int> peers) {
  Communicator& group = over(axes, lane);
  if (accelerator_ == nullptr || group.has_device_posts()) return;
  const std::string own_lane = fmt::format("{} of posts of devices", lane);
  tessera::connect_posts(
      group, peers, [&] { return join_(group.ranks(), own_lane); }, *accelerator_, timeout_);
}

Communicator& RankGroups::find_or_make(std::vector<int> ranks, std::string_view lane) {
  // The lock is held while other ranks join: two threads must not make the same communicator.
  const std::scoped_lock lock(mutex_);
  const auto key = std::pair(std::move(ranks), std::string(lane));
  const auto known = communicators_.find(key);
  if (known != communicators_.end()) return known->second;
  Communicator& communicator = communicators_.emplace(key, join_(key.first, lane)).first->second;
  if (accelerator_ != nullptr && lane != kControlLane && lane != kStateLane) {
    const std::string own_lane = fmt::format("{} of devices", lane);
    connect_devices(
        communicator, [&] { return join_(key.first, own_lane); }, *accelerator_, timeout_);
  }
  return communicator;
}

}  // namespace tessera
