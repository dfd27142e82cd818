#include "comm/tcp/plane_process.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace tessera {

Communicator PlaneProcess::group(std::span<const int> ranks, std::string_view lane) {
  std::unique_ptr<Transport> transport = join(ranks, lane);  // checks that the rank is a member
  return {std::move(transport), std::vector<int>(ranks.begin(), ranks.end()),
          static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin())};
}

void PlaneProcess::abort(int status) {
  end_others(status);
  std::fflush(nullptr);
  std::_Exit(status);  // without destructors, which would wait for ranks that have not come
}

}  // namespace tessera
