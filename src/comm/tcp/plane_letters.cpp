#include "comm/tcp/plane_letters.h"

#include <algorithm>

namespace tessera {
namespace {

/// The most calls of an answer: a rank has one for each of its groups.
constexpr int64_t kMostCalls = 4096;

bool has(const std::vector<int>& ranks, int rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

}  // namespace

void put_wait(WireWriter& message, const PlaneWait& wait) {
  message.put(wait.number, wait.ranks, wait.lane, wait.mark, wait.needs, wait.timeout,
              wait.remaining);
}

PlaneWait take_wait_of(WireReader& message, int rank, int ranks) {
  PlaneWait wait;
  message.take_last_into(wait.number, wait.ranks, wait.lane, wait.mark, wait.needs, wait.timeout,
                         wait.remaining);
  const auto is_rank = [&](int member) { return member >= 0 && member < ranks; };
  const auto is_member = [&](int needed) { return needed != rank && has(wait.ranks, needed); };
  if (std::ssize(wait.ranks) > ranks || std::ssize(wait.needs) > ranks ||
      !std::ranges::all_of(wait.ranks, is_rank) || !has(wait.ranks, rank) ||
      !std::ranges::all_of(wait.needs, is_member)) {
    throw BadMessage("a wait of rank {} in a group of which it is not one", rank);
  }
  return wait;
}

void put_calls(WireWriter& message, const std::vector<LastCall>& calls) {
  const auto now = std::chrono::steady_clock::now();
  message.put<int64_t>(std::ssize(calls));
  for (const LastCall& call : calls) {
    message.put(call.text, call.group, call.state,
                std::chrono::ceil<std::chrono::milliseconds>(now - call.begun));
  }
}

std::vector<LastCall> take_calls(WireReader& message) {
  const auto now = std::chrono::steady_clock::now();
  const auto count = message.take_between<int64_t>(0, kMostCalls, "a number of calls");
  std::vector<LastCall> calls;
  for (int64_t i = 0; i < count; ++i) {
    LastCall& call = calls.emplace_back();
    message.take_into(call.text, call.group);
    call.state = message.take_enum(CallState::failed, "the state of a call");
    call.begun = now - message.take_wait();
  }
  message.require_end();
  return calls;
}

void put_withdrawal(WireWriter& message, const PlaneWithdrawal& withdrawal) {
  message.put(withdrawal.peer, withdrawal.group, withdrawal.why);
}

PlaneWithdrawal take_withdrawal(WireReader& message, int ranks) {
  PlaneWithdrawal withdrawal{.peer = message.take_between(0, ranks - 1, "a rank")};
  message.take_last_into(withdrawal.group, withdrawal.why);
  return withdrawal;
}

}  // namespace tessera
