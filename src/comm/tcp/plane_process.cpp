#include "comm/tcp/plane_process.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "comm/call_errors.h"

namespace tessera {

void PlaneProcess::abort(int status) {
  end_others(status);
  std::fflush(nullptr);
  std::_Exit(status);  // without destructors, which would wait for ranks that have not come
}

Processes::Report report_of(int rank, const std::map<int, std::string>& ends, int ranks) {
  using Report = Processes::Report;
  const std::string& own = ends.at(rank);
  if (own.empty()) return Report::none;
  const auto same = [&](const auto& end) { return end.second == own; };
  if (std::ssize(ends) == ranks && std::ranges::all_of(ends, same)) {
    return rank == 0 ? Report::for_all : Report::none;
  }
  // Whether the error of this rank says that the rank of `end` failed.
  const auto is_cause = [&](const auto& end) {
    return !end.second.empty() && own == failed_text(end.first, end.second);
  };
  const bool reported_by_another =
      std::ranges::any_of(ends, is_cause) || std::ranges::find_if(ends, same)->first < rank;
  return reported_by_another ? Report::none : Report::own;
}

}  // namespace tessera
