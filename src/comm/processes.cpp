#include "comm/processes.h"

#include <fmt/format.h>

namespace tessera {

std::vector<int> Processes::ranks_here() const {
  const std::span<const std::string> all = hosts();
  const std::string& own = all[static_cast<size_t>(rank())];
  std::vector<int> result;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == own) result.push_back(static_cast<int>(rank));
  }
  return result;
}

std::string Processes::text(int rank) const {
  return fmt::format("rank {} ({})", rank, hosts()[static_cast<size_t>(rank)]);
}

}  // namespace tessera
