#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>

#include "comm/fingerprint.h"

namespace tessera {

// The error texts of calls that fail, the same for all transports. `group` is group_text(). `mark`
// is the fingerprint of the call (comm/fingerprint.h), or the fingerprint's text.

/// Returns how long a rank waited for others, and the options that set this time: "after 1800 s
/// (run.rank_timeout; of a benchmark, --rank-timeout)".
std::string waited_text(std::chrono::milliseconds timeout);

/// Returns the group in words: "group [0, 2] on lane reductions".
std::string group_text(std::span<const int> ranks, std::string_view lane);

/// Returns the error of a rank whose work failed: "rank 3 failed: its experts got too many rows".
std::string failed_text(int rank, std::string_view why);

/// Returns the error of `rank`, which has asked for a group. The ranks `missing` did not ask for
/// the same group in time.
std::string group_timeout_text(std::string_view rank, std::string_view group,
                               std::chrono::milliseconds timeout,
                               std::span<const std::string> missing);

/// Returns the error about a rank whose work had not ended when the others had waited for
/// `patience` at the end of the run.
std::string end_timeout_text(std::string_view rank, std::chrono::milliseconds patience);

/// Returns the error of a call in which the ranks `waiting` waited, and to which the ranks
/// `missing` did not come. `last_calls` says of each missing rank what it did last.
std::string timeout_text(std::string_view mark, std::string_view group,
                         std::chrono::milliseconds timeout, std::span<const int> waiting,
                         std::span<const int> missing, std::span<const std::string> last_calls);

/// Returns the error of a call in which all ranks have waited for so long.
std::string not_carried_text(std::string_view mark, std::string_view group,
                             std::chrono::milliseconds timeout);

/// Returns what is said of a rank that does not answer. `rank` is its name in messages.
std::string silent_text(std::string_view rank);

/// Returns the error of a call that needs `ranks`, which have ended. `last_calls` is as above.
std::string ended_text(std::string_view mark, std::string_view group, std::span<const int> ranks,
                       std::span<const std::string> last_calls);

/// Returns the error of a rank that waits for a message which `rank`, its other rank, has
/// withdrawn.
std::string withdrawn_text(const Fingerprint& mark, std::string_view group, int rank);

/// Returns the error of ranks that made different calls. `calls` has a text for each rank, such as
/// "rank 0 made call 2, ...".
std::string disagreement_text(std::string_view group, std::span<const std::string> calls);

/// Returns the error of a group in which two ranks list different calls before they make them:
/// `first_call` and `second_call` are the first that differ.
std::string different_lists_text(std::span<const int> group, int first_rank,
                                 std::string_view first_call, int second_rank,
                                 std::string_view second_call);

/// Returns the error of two ranks that do not agree how many rows one sends to the other.
std::string different_rows_text(const Fingerprint& mark, std::string_view group, int from,
                                int64_t sent, int to, int64_t received);

/// Returns the error of two ranks that do not agree about a message. `sent` and `received` are the
/// texts of their fingerprints.
std::string different_messages_text(std::string_view group, int from, std::string_view sent, int to,
                                    std::string_view received);

}  // namespace tessera
