#include "train/shared_cores.h"

#include <array>
#include <span>
#include <vector>

#include "base/affinity.h"
#include "base/hash.h"

namespace tessera {

SharedCores find_shared_cores(const std::string& host, const RankControl& control) {
  const std::vector<int> cores = cores_at_start();
  // Ranks share cores if their machines and the cores that they could use at the start are equal.
  const std::array<uint64_t, 1> own{hash(std::as_bytes(std::span(cores)), hash(host))};
  const std::vector<uint64_t> all = control.gather(own);
  SharedCores shared{.ranks = 0};
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != own[0]) continue;
    if (static_cast<int>(rank) == control.rank()) shared.index = shared.ranks;
    ++shared.ranks;
  }
  return shared;
}

}  // namespace tessera
