#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/words.h"
#include "comm/communicator.h"

namespace tessera {

// The rates of collectives: how they are measured, and reports of them.

/// What the ranks are, which decides how their messages travel.
enum class RankKind {
  threads,    ///< of one process, whose memory they share
  processes,  ///< connected by MPI or by TCP
};
template <>
inline constexpr std::array<std::string_view, 2> kWordsOf<RankKind>{"threads", "processes"};

/// The ranks among which a collective is measured. They label the results.
struct CollectiveRanks {
  RankKind kind = RankKind::threads;
  int count = 2;
  int machines = 1;

  bool operator==(const CollectiveRanks&) const = default;
  /// Returns a text such as "8 processes of 2 machines".
  std::string text() const;
};

/// The rate of a collective with data of one size: the time of a call, and the bandwidth.
struct CollectiveRate {
  Collective collective = Collective::all_reduce;
  DType dtype = DType::f32;
  CollectiveRanks ranks;
  /// The size of a call in bytes: of the whole array that is gathered, summed or broadcast, or of
  /// what one rank sends in an all-to-all or as a message.
  int64_t bytes = 0;
  double best_seconds = 0;    ///< of the fastest batch of calls, per call
  double median_seconds = 0;  ///< of the median batch, per call

  bool operator==(const CollectiveRate&) const = default;
  /// Returns the bandwidth at best_seconds as NCCL's tests define it ("bus bandwidth"): the bytes
  /// that each rank must send, per second. It can be compared with the bandwidth of a link.
  double bus_bandwidth() const;
};

/// Returns the bytes that each of so many ranks must send, as a share of a call's bytes.
double sent_share(Collective collective, int ranks);

/// The collectives whose rates can be measured.
inline constexpr std::array kMeasuredCollectives{Collective::all_gather, Collective::reduce_scatter,
                                                 Collective::all_reduce, Collective::all_to_all,
                                                 Collective::broadcast,  Collective::message};

/// The collectives and sizes to measure in a group of ranks.
struct CollectiveSweep {
  std::vector<Collective> collectives;
  std::vector<int64_t> bytes;  ///< rounded up to whole elements for each rank
  DType dtype = DType::f32;    ///< f32 or bf16
  double seconds = 0.2;        ///< about how long each size is measured; at least three batches
};

/// Measures every collective of the sweep with every size. `everyone` has the ranks of all groups
/// that measure at once (see collective_groups()); it may have the ranks of this group alone. Each
/// of them calls this with the same sweep, and gets the times of the slowest of them. `ranks`
/// describes a group in the results. A message goes from each rank of the group to the next. Throws
/// Error on all ranks if an InterruptGuard has caught a signal on one of them.
std::vector<CollectiveRate> measure_collectives(Communicator& group, Communicator& everyone,
                                                const CollectiveRanks& ranks,
                                                const CollectiveSweep& sweep);

/// Returns tables of bus bandwidth (GB/s) and of the time of a call (microseconds), by size and
/// collective. Different ranks and dtypes have tables of their own.
std::string collectives_text(const std::vector<CollectiveRate>& rates);

/// Returns an SVG line chart of the bus bandwidths by size. There must be at least one rate.
std::string collectives_picture(const std::vector<CollectiveRate>& rates);

}  // namespace tessera
