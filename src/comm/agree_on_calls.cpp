// Each rank has a hash of each sequence of its calls: of the collectives, and of the messages to
// and from each other rank. The ranks exchange the hashes. If two ranks differ, all ranks search
// with them for the first call that differs: they bisect the sequence by the hashes of its
// beginnings. So long lists cost no more than some twenty small calls.

#include "comm/agree_on_calls.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/call_errors.h"
#include "comm/share.h"

namespace tessera {
namespace {

constexpr std::string_view kName = "list_of_calls";

/// Two positions of the group whose ranks list a sequence of calls differently.
struct Difference {
  CallList::Sequence sequence;
  int first = 0;
  int second = 0;
};

/// Returns the first difference between the ranks; none if all agree.
std::optional<Difference> find_difference(Communicator& group, const CallList& list) {
  const int ranks = group.size();
  const std::vector<uint64_t> collectives =
      gather_numbers(group, kName, std::array{list.prefix_hashes({}).back()});
  for (int position = 1; position < ranks; ++position) {
    if (collectives[static_cast<size_t>(position)] == collectives.front()) continue;
    return Difference{.sequence = {}, .first = 0, .second = position};
  }
  const std::vector<uint64_t> messages = list.message_hashes();
  std::vector<uint64_t> of_peers(messages.size());
  group.all_to_all(kName, byte_tensor(messages), byte_tensor(of_peers));
  // Each rank finds the first receiver that does not agree with it; `ranks` stands for none.
  auto receiver = static_cast<uint64_t>(ranks);
  for (int peer = ranks; peer-- > 0;) {
    const size_t at = 2 * static_cast<size_t>(peer);
    if (messages[at] != of_peers[at + 1]) receiver = static_cast<uint64_t>(peer);
  }
  const std::vector<uint64_t> receivers = gather_numbers(group, kName, std::array{receiver});
  for (int sender = 0; sender < ranks; ++sender) {
    const auto found = static_cast<int>(receivers[static_cast<size_t>(sender)]);
    if (found == ranks) continue;
    return Difference{.sequence = {.from = sender, .to = found}, .first = sender, .second = found};
  }
  return std::nullopt;
}

/// Returns the index of the first call that differs. All ranks of the group call this.
size_t first_different_call(Communicator& group, const CallList& list,
                            const Difference& difference) {
  const std::vector<uint64_t> hashes = list.prefix_hashes(difference.sequence);
  const auto of_both = [&](uint64_t number) {
    const std::vector<uint64_t> of_all = gather_numbers(group, kName, std::array{number});
    return std::array{of_all[static_cast<size_t>(difference.first)],
                      of_all[static_cast<size_t>(difference.second)]};
  };
  const auto calls = of_both(hashes.size() - 1);
  uint64_t equal = 0;                          // so many calls are equal
  uint64_t end = std::ranges::min(calls) + 1;  // so many are not, or one list has fewer
  while (end - equal > 1) {
    const uint64_t middle = equal + (end - equal) / 2;
    // The other ranks have lists of their own, which do not count.
    const auto both = of_both(middle < hashes.size() ? hashes[middle] : 0);
    (both[0] == both[1] ? equal : end) = middle;
  }
  return static_cast<size_t>(equal);
}

}  // namespace

void agree_on_calls(Communicator& group, const CallList& list) {
  group.expect_calls(std::nullopt);  // of an earlier list
  const std::optional<Difference> difference = find_difference(group, list);
  if (!difference) return group.expect_calls(list.hashes());
  const size_t index = first_different_call(group, list, *difference);
  const std::string own = list.text(difference->sequence, index);
  const std::string first = broadcast_text(group, kName, difference->first, own);
  const std::string second = broadcast_text(group, kName, difference->second, own);
  const auto rank_at = [&](int position) { return group.ranks()[static_cast<size_t>(position)]; };
  throw Error("{}", different_lists_text(group.ranks(), rank_at(difference->first), first,
                                         rank_at(difference->second), second));
}

}  // namespace tessera
