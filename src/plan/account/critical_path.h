#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/worded.h"
#include "pipeline/run_trace.h"
#include "plan/account/network_calls.h"

namespace tessera {

/// What a rank does in a part of the critical path.
enum class PathKind : uint8_t { compute, network, idle };
template <>
inline constexpr std::array<std::string_view, 3> kWordsOf<PathKind>{"compute", "network", "idle"};
inline constexpr size_t kPathKinds = kWordsOf<PathKind>.size();

/// A part of the critical path: a piece of one event of a rank, or the time between two.
struct PathPart {
  size_t rank = 0;  ///< index in RunTrace::ranks
  PathKind kind = PathKind::idle;
  std::string name;  ///< the block of the model or the axes of the call; empty for idle time
  std::chrono::nanoseconds start{};
  std::chrono::nanoseconds end{};
};

/// A row of the critical path: all of its parts of one kind and name.
struct PathRow {
  PathKind kind = PathKind::idle;
  std::string name;
  std::chrono::nanoseconds time{};
};

/// A run of the critical path on one rank, between two changes of ranks.
struct PathRun {
  int rank = 0;
  std::chrono::nanoseconds start{};
  std::chrono::nanoseconds end{};
  std::array<std::chrono::nanoseconds, kPathKinds> by_kind{};

  std::chrono::nanoseconds time() const { return end - start; }
};

/// The critical path of a traced step: parts that follow each other without a gap, up to the end of
/// the last event of any rank, and in which no rank waits for another one.
struct CriticalPath {
  std::vector<PathPart> parts;  ///< in the order of time
  std::vector<PathRow> rows;    ///< the longest first
  std::vector<PathRun> runs;    ///< in the order of time
  int64_t unmatched = 0;        ///< the calls on it whose last rank is not known

  /// Returns its length.
  std::chrono::nanoseconds time() const;
  int64_t rank_changes() const { return runs.empty() ? 0 : std::ssize(runs) - 1; }
};

/// Returns the critical path of a trace, whose calls are `calls`.
///
/// It is found backwards from the end, as by Böhme et al., "Scalable Critical-Path Based
/// Performance Analysis" (IPDPS 2012): the path goes through the rank's events, and where the rank
/// waited for another one it goes on there. Before an event comes the event of the rank, on any
/// lane, that ended last before it began. That one may have been awaited, but a trace does not say
/// so. Before the transfer of a call comes what the last rank did before it arrived. A call whose
/// last rank is not known counts as a whole, and the path stays on the rank.
CriticalPath find_critical_path(const RunTrace& trace,
                                const std::vector<std::vector<NetworkCall>>& calls);

}  // namespace tessera
