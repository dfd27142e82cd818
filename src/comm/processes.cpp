#include "comm/processes.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

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

std::vector<RankPlace> Processes::places() {
  std::vector<int> all(hosts().size());
  std::iota(all.begin(), all.end(), 0);
  const Tensor own({2}, DType::i32);
  const CorePlace here = core_place();
  own.data<int32_t>()[0] = here.package;
  own.data<int32_t>()[1] = here.numa;
  const Tensor gathered({2 * ranks()}, DType::i32);
  group(all, "places").all_gather("places", even_pieces(2 * ranks(), ranks()), own, gathered);
  std::vector<RankPlace> result;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const int32_t* parts = gathered.data<int32_t>() + 2 * rank;
    result.push_back({hosts()[rank], {.package = parts[0], .numa = parts[1]}});
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
