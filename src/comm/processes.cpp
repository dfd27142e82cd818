#include "comm/processes.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "comm/share.h"

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

std::vector<RankPlace> Processes::places() {
  std::vector<int> all(hosts().size());
  std::iota(all.begin(), all.end(), 0);
  const CorePlace here = core_place();
  const std::array own{static_cast<uint64_t>(here.package), static_cast<uint64_t>(here.numa)};
  Communicator together = group(all, "places");
  const std::vector<uint64_t> parts = gather_numbers(together, "places", own);
  std::vector<RankPlace> result;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto part = [&](size_t index) { return static_cast<int>(parts[2 * rank + index]); };
    result.push_back({hosts()[rank], {.package = part(0), .numa = part(1)}});
  }
  return result;
}

Communicator Processes::group(std::span<const int> ranks, std::string_view lane) {
  std::unique_ptr<Transport> of_rank = transport(ranks, lane);  // checks that the rank is a member
  return {std::move(of_rank), std::vector<int>(ranks.begin(), ranks.end()),
          static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin())};
}

std::string Processes::text(int rank) const {
  return fmt::format("rank {} ({})", rank, hosts()[static_cast<size_t>(rank)]);
}

}  // namespace tessera
