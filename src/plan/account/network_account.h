#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pipeline/run_trace.h"
#include "plan/account/network_calls.h"

namespace tessera {

/// The time of a rank in calls over some axes. A moment in which several of these calls are under
/// way counts once. It is hidden if the rank computes meanwhile, and exposed otherwise. Of the
/// exposed moments, one in which a call transfers is one of transfer. One in which none does, and
/// the arrival of the last rank in a call is not known, is not told apart. In the others all calls
/// wait for the last rank.
struct NetworkTime {
  std::string axes;  ///< as in NetworkCall; "all" for the calls over any axes
  int64_t calls = 0;
  double bytes = 0;  ///< that the rank sends
  std::chrono::nanoseconds total{};
  std::chrono::nanoseconds hidden{};
  std::chrono::nanoseconds waiting{};  ///< exposed, as the next two
  std::chrono::nanoseconds transferring{};
  std::chrono::nanoseconds not_told_apart{};

  std::chrono::nanoseconds exposed() const { return waiting + transferring + not_told_apart; }
};

/// The times of one rank.
struct RankNetwork {
  int rank = 0;
  std::vector<NetworkTime> by_axes;  ///< by name
  /// Calls over any axes. Calls over different axes may overlap: the rows then add up to more.
  NetworkTime all;
};

/// The account of the calls of all ranks.
struct NetworkAccount {
  std::vector<RankNetwork> ranks;
  std::map<CallMatch, int64_t> unmatched;  ///< the calls whose last rank is not known, by reason
  double uncertainty = 0;  ///< the largest of an arrival (Arrival::uncertainty), in seconds
  /// The operations of the compute lanes that call other ranks within. They count as computing.
  int64_t calls_in_compute = 0;

  /// Returns the sums over the ranks by axes, the most exposed first, and then that of all axes.
  std::vector<NetworkTime> sums() const;
};

/// Returns the account of a trace, whose calls are `calls`.
NetworkAccount account_for_network(const RunTrace& trace,
                                   const std::vector<std::vector<NetworkCall>>& calls);

}  // namespace tessera
