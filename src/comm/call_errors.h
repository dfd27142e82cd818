#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>

#include "comm/fingerprint.h"

namespace tessera {

// What ranks say when a call of a group fails. All transports say the same.

/// Returns how long a rank waited for others, and what sets it: "after 1800 s (run.rank_timeout)".
/// The benchmark of collectives has an option for it.
std::string waited_text(std::chrono::milliseconds timeout);

/// The group in words: "group [0, 2] on lane network".
std::string group_text(std::span<const int> ranks, std::string_view lane);

/// The work of a rank failed: "rank 3 failed: its experts got too many rows".
std::string failed_text(int rank, std::string_view why);

/// `rank` waited for others to ask for a group, and `missing` did not.
std::string not_asked_for_text(std::string_view rank, std::string_view group,
                               std::chrono::milliseconds timeout,
                               std::span<const std::string> missing);

/// Returns what is said of a rank whose work has not ended, after the others have waited for it at
/// the end of theirs.
std::string not_ended_text(std::string_view rank, std::chrono::milliseconds patience);

/// Some ranks waited and others did not come. `last` says what these did last, one text a rank.
std::string timeout_text(std::string_view mark, std::string_view group,
                         std::chrono::milliseconds timeout, std::span<const int> there,
                         std::span<const int> not_there, std::span<const std::string> last);

/// Some ranks have ended that a call needs.
std::string ended_text(const Fingerprint& mark, std::string_view group, std::span<const int> ranks,
                       std::span<const std::string> last);

/// The ranks made different calls, of which each text is one: "rank 0 made call 2, ...".
std::string disagreement_text(std::string_view group, std::span<const std::string> calls);

/// Two ranks do not agree about the rows that one sends to the other.
std::string rows_text(const Fingerprint& mark, std::string_view group, int from, int64_t sent,
                      int to, int64_t received);

/// Two ranks do not agree about a message.
std::string message_text(std::string_view group, int from, std::string_view sent, int to,
                         std::string_view received);

}  // namespace tessera
