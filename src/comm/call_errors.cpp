#include "comm/call_errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tessera {

std::string waited_text(std::chrono::milliseconds timeout) {
  return fmt::format("after {:g} s (run.rank_timeout; of a benchmark, --rank-timeout)",
                     std::chrono::duration<double>(timeout).count());
}

std::string group_text(std::span<const int> ranks, std::string_view lane) {
  return fmt::format("group [{}] on lane {}", fmt::join(ranks, ", "), lane);
}

std::string failed_text(int rank, std::string_view why) {
  return fmt::format("rank {} failed: {}", rank, why);
}

std::string group_timeout_text(std::string_view rank, std::string_view group,
                               std::chrono::milliseconds timeout,
                               std::span<const std::string> missing) {
  return fmt::format("{} waits for the others of the {}: {}, {} did not ask for it", rank, group,
                     waited_text(timeout), fmt::join(missing, ", "));
}

std::string end_timeout_text(std::string_view rank, std::chrono::milliseconds patience) {
  return fmt::format("{} has not come to the end of the run: {}, the others end without it", rank,
                     waited_text(patience));
}

std::string timeout_text(std::string_view mark, std::string_view group,
                         std::chrono::milliseconds timeout, std::span<const int> waiting,
                         std::span<const int> missing, std::span<const std::string> last_calls) {
  return fmt::format(
      "{} of {}: {}, {} waited and {} did not come. {}. Find out what held them up, or let ranks "
      "wait longer",
      mark, group, waited_text(timeout), ranks_text(waiting), ranks_text(missing),
      fmt::join(last_calls, "; "));
}

std::string not_carried_text(std::string_view mark, std::string_view group,
                             std::chrono::milliseconds timeout) {
  return fmt::format(
      "{} of {}: {} all ranks wait in it, and the network does not carry it. Look at the links "
      "between the machines",
      mark, group, waited_text(timeout));
}

std::string silent_text(std::string_view rank) {
  return fmt::format("{} does not answer: it is stopped, or gone, or cannot be reached", rank);
}

std::string ended_text(std::string_view mark, std::string_view group, std::span<const int> ranks,
                       std::span<const std::string> last_calls) {
  return fmt::format(
      "{} of {}: {} ended without it. {}. All ranks of a group must make the same calls in the "
      "same order",
      mark, group, ranks_text(ranks), fmt::join(last_calls, "; "));
}

std::string withdrawn_text(const Fingerprint& mark, std::string_view group, int rank) {
  return fmt::format(
      "{} of {}: rank {} has withdrawn it. A rank must wait for each message that it posts",
      mark.text(), group, rank);
}

std::string disagreement_text(std::string_view group, std::span<const std::string> calls) {
  return fmt::format(
      "the ranks of {} do not make the same call: {}. All ranks of a group must make the same "
      "calls in the same order",
      group, fmt::join(calls, "; "));
}

std::string different_lists_text(std::span<const int> group, int first_rank,
                                 std::string_view first_call, int second_rank,
                                 std::string_view second_call) {
  return fmt::format(
      "the programs of {} would not make the same calls. The first that differs: rank {} would "
      "make "
      "{}; rank {} would make {}. All ranks must run the same version with the same configuration",
      ranks_text(group), first_rank, first_call, second_rank, second_call);
}

std::string different_rows_text(const Fingerprint& mark, std::string_view group, int from,
                                int64_t sent, int to, int64_t received) {
  return fmt::format(
      "the ranks of {} do not agree in {}: rank {} sends {} rows to rank {}, which receives {} "
      "from it. Both must count the same rows",
      group, mark.text(), from, sent, to, received);
}

std::string different_messages_text(std::string_view group, int from, std::string_view sent, int to,
                                    std::string_view received) {
  return fmt::format(
      "the ranks of {} do not make the same call: rank {} sends {}; rank {} receives {}. Both "
      "must send and receive the same messages in the same order",
      group, from, sent, to, received);
}

}  // namespace tessera
