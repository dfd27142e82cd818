#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/worded.h"
#include "pipeline/run_trace.h"

namespace tessera {

// The calls of other ranks in a traced step, and in each the moment at which the last rank arrived.
// Times are whole nanoseconds, as in the file, so that their sums are exact.

/// Returns a time of a trace in whole nanoseconds.
std::chrono::nanoseconds nanoseconds_of(double seconds);
/// Returns a time in seconds.
double seconds_of(std::chrono::nanoseconds time);

/// Says whether the calls of other ranks that belong to a call are known.
enum class CallMatch : uint8_t {
  known,
  ranks_left_out,  ///< the file leaves out ranks of the group
  counts_differ,   ///< ranks of the group made different numbers of calls
  not_recorded,    ///< the file does not say which ranks are called
};
template <>
inline constexpr std::array<std::string_view, 4> kWordsOf<CallMatch>{
    "known", "the file leaves out ranks of their groups",
    "the ranks of their groups made different numbers of calls",
    "the file does not say which ranks they call"};

/// The arrival of the last rank in a call of a group, or of the other side of a message.
struct Arrival {
  /// The moment, moved into the time of the call if it is outside: the group cannot be complete
  /// before a rank of it has begun, nor after one has ended.
  std::chrono::nanoseconds at{};
  std::chrono::nanoseconds begun{};  ///< when the last rank began its call, or posted its message
  size_t rank = 0;                   ///< the last rank, as an index in RunTrace::ranks
  double uncertainty = 0;            ///< of the difference of both ranks' clocks, in seconds
};

/// A call of other ranks by one rank: an operation of a lane that communicates, or a wait for a
/// message of the pipeline. It waits until the last rank arrives, and the rest is the transfer.
struct NetworkCall {
  std::string axes;  ///< the names of the group's axes: "data.0+data.1"; empty if not recorded
  Lane lane = Lane::exchanges;
  std::chrono::nanoseconds start{};
  std::chrono::nanoseconds end{};
  double bytes = 0;  ///< that this rank sends
  CallMatch match = CallMatch::not_recorded;
  std::optional<Arrival> arrival = {};  ///< none unless the match is known
};

/// Returns whether an event of a trace is a call of other ranks on a lane. An operation of a lane
/// that communicates may find all that it needs on its own rank.
bool is_network_call(const RunTrace& trace, const TraceEvent& event);

/// Returns the calls of each rank of a trace, first the operations and then the waits for messages.
///
/// The k-th call of a rank to a group on a lane belongs to the k-th call of every other rank of the
/// group there: each lane has its own order, which all ranks of a group share. The last rank's
/// arrival is the latest begin among them. An operation that calls several groups waits for the
/// last rank of all. If ranks are left out of the file, or their numbers of calls differ, the
/// arrival is not known.
///
/// A wait for a message that arrives waits for the post of its sender, and one for a message that
/// leaves for the post of its receiver.
std::vector<std::vector<NetworkCall>> network_calls(const RunTrace& trace);

}  // namespace tessera
