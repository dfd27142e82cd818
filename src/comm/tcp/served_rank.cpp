#include "comm/tcp/served_rank.h"

#include <string>
#include <utility>
#include <vector>

#include "comm/tcp/tcp_messages.h"

namespace tessera {
namespace {

/// The most groups of a rank, each of which has a thread. A mesh has some for each of its axes and
/// lanes.
constexpr int kMostGroups = 1024;
constexpr size_t kMostLaneBytes = 256;

}  // namespace

void ServedRank::serve() {
  std::vector<std::byte> memory;
  for (;;) {
    WireReader request = receive_message(answers_.socket(), memory);
    const auto asked = request.take_enum(TcpAsked::call, "a question");
    if (asked == TcpAsked::group) {
      open_group(request);
      continue;
    }
    const auto group = groups_.find(request.take<int>());
    if (group == groups_.end()) throw BadMessage("a call in a group that was not asked for");
    group->second->begin(request);
  }
}

void ServedRank::open_group(WireReader& request) {
  const auto number = request.take_between<int>(0, kMostGroups - 1, "the number of a group");
  if (groups_.contains(number)) throw BadMessage("two groups with the number {}", number);
  const auto timeout = request.take_wait();
  auto ranks = request.take_all<int>();
  std::string lane = request.take_text();
  request.end();
  if (std::ssize(ranks) > world_.ranks() || lane.size() > kMostLaneBytes) {
    throw BadMessage("a group of {} ranks with a lane of {} bytes", ranks.size(), lane.size());
  }
  std::vector<bool> known(static_cast<size_t>(world_.ranks()));
  for (const int rank : ranks) {
    if (rank < 0 || rank >= world_.ranks() || known[static_cast<size_t>(rank)]) {
      throw BadMessage("a group with the rank {}, of {} ranks", rank, world_.ranks());
    }
    known[static_cast<size_t>(rank)] = true;
  }
  if (!known[static_cast<size_t>(rank_)]) throw BadMessage("a group without the rank itself");
  world_.set_timeout(rank_, timeout);
  groups_.emplace(number, std::make_unique<ServedGroup>(answers_, world_, number, rank_,
                                                        std::move(ranks), std::move(lane)));
}

}  // namespace tessera
