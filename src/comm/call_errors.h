#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>

#include "comm/fingerprint.h"

namespace tessera {

// The error texts of calls that fail, for all transports.

/// Returns how long a rank waited for others, and the options that set it: "after 1800 s
/// (run.rank_timeout; of a benchmark, --rank-timeout)".
std::string waited_text(std::chrono::milliseconds timeout);

/// Returns the group in words: "group [0, 2] on lane network".
std::string group_text(std::span<const int> ranks, std::string_view lane);

/// Returns the error of a rank whose work failed: "rank 3 failed: its experts got too many rows".
std::string failed_text(int rank, std::string_view why);

/// Returns the error of `rank`, which waited for others to ask for a group, when the ranks in
/// `missing` did not.
std::string not_asked_for_text(std::string_view rank, std::string_view group,
                               std::chrono::milliseconds timeout,
                               std::span<const std::string> missing);

/// Returns the error about a rank whose work has not ended, after the others have waited for it at
/// the end of theirs.
std::string not_ended_text(std::string_view rank, std::chrono::milliseconds patience);

/// Returns the error of a call in which some ranks waited and others did not come. `last` has the
/// last calls of the latter in words, one text for each rank.
std::string timeout_text(std::string_view mark, std::string_view group,
                         std::chrono::milliseconds timeout, std::span<const int> there,
                         std::span<const int> not_there, std::span<const std::string> last);

/// Returns the error of a call that needs ranks which have ended.
std::string ended_text(const Fingerprint& mark, std::string_view group, std::span<const int> ranks,
                       std::span<const std::string> last);

/// Returns the error of ranks that made different calls. `calls` has one text for each: "rank 0
/// made call 2, ...".
std::string disagreement_text(std::string_view group, std::span<const std::string> calls);

/// Returns the error of two ranks that do not agree about the rows that one sends to the other.
std::string rows_text(const Fingerprint& mark, std::string_view group, int from, int64_t sent,
                      int to, int64_t received);

/// Returns the error of two ranks that do not agree about a message.
std::string message_text(std::string_view group, int from, std::string_view sent, int to,
                         std::string_view received);

}  // namespace tessera
