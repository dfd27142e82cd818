#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/nccl/nccl_communicator_cuda.h"
#include "comm/nccl/nccl_links.h"

namespace tessera {
namespace {

/// What NCCL needs for the messages from this rank to a peer, or from it.
struct Direction {
  std::unique_ptr<NcclCommunicator> pair;  // of the sender and the receiver
  std::shared_ptr<Stream> stream;
  std::unique_ptr<Event> reached;  // recorded in the stream of a post, before its message
};

constexpr int kSender = 0;  // positions in a pair
constexpr int kReceiver = 1;

class NcclPosts final : public DevicePosts {
 public:
  /// The peer's position, and whether this rank sends.
  using Key = std::pair<int, bool>;

  NcclPosts(std::map<Key, Direction> directions, Accelerator& accelerator)
      : directions_(std::move(directions)), accelerator_(accelerator) {}

  std::unique_ptr<Post> post(std::string_view name, const DeviceBuffer& buffer, bool sent,
                             Stream& stream) override {
    const auto found = directions_.find({buffer.peer, sent});
    TESSERA_CHECK(found != directions_.end(), "'{}' has the peer {}, which was not connected", name,
                  buffer.peer);
    Direction& direction = found->second;
    NcclCommunicator& pair = *direction.pair;
    const NcclLibrary& nccl = pair.library();
    stream.record(*direction.reached);
    direction.stream->wait(*direction.reached);
    pair.begin(name);
    const auto bytes = static_cast<size_t>(buffer.bytes);
    if (sent) {
      pair.check(nccl.send(buffer.memory, bytes, ncclUint8, kReceiver, pair.handle(),
                           nccl_stream(*direction.stream)),
                 "send");
    } else {
      pair.check(nccl.receive(buffer.memory, bytes, ncclUint8, kSender, pair.handle(),
                              nccl_stream(*direction.stream)),
                 "receive");
    }
    auto post = std::make_unique<NcclPost>();
    post->moved = accelerator_.make_event();
    direction.stream->record(*post->moved);
    return post;
  }

  void wait(Post& post, Stream& stream) override {
    stream.wait(*static_cast<NcclPost&>(post).moved);
  }

 private:
  struct NcclPost final : Post {
    std::unique_ptr<Event> moved;
  };

  std::map<Key, Direction> directions_;
  Accelerator& accelerator_;
};

/// Exchanges the addresses at which NCCL joins the ranks of each direction. The senders make them.
std::map<NcclPosts::Key, ncclUniqueId> exchange_addresses(Communicator& group,
                                                          std::span<const int> peers,
                                                          const NcclLibrary& nccl) {
  const int rank = group.ranks()[static_cast<size_t>(group.position())];
  std::map<NcclPosts::Key, ncclUniqueId> addresses;
  std::vector<Message> sends;
  std::vector<Message> receives;
  for (const int peer : peers) {
    for (const bool sent : {true, false}) {
      ncclUniqueId& id = addresses[{peer, sent}];
      if (sent) id = new_nccl_address(nccl, rank);
      (sent ? sends : receives)
          .push_back({peer, Tensor::wrap(&id, {int64_t{sizeof id}}, DType::u8)});
    }
  }
  group.exchange("the addresses of NCCL for messages", sends, receives);
  return addresses;
}

}  // namespace

std::unique_ptr<DevicePosts> nccl_posts(Communicator& group, std::span<const int> peers,
                                        Accelerator& accelerator,
                                        std::chrono::milliseconds timeout) {
  const auto nccl = std::make_shared<const NcclLibrary>();
  const auto addresses = exchange_addresses(group, peers, *nccl);
  // All ranks join the pairs in the same order, so that none waits for one that waits for it.
  std::vector<std::pair<std::pair<int, int>, NcclPosts::Key>> in_order;
  for (const auto& [key, id] : addresses) {
    const auto [peer, sent] = key;
    const auto pair = sent ? std::pair(group.position(), peer) : std::pair(peer, group.position());
    in_order.emplace_back(pair, key);
  }
  std::ranges::sort(in_order);
  std::map<NcclPosts::Key, Direction> directions;
  for (const auto& [pair, key] : in_order) {
    Direction& direction = directions[key];
    const std::vector<int> ranks{group.ranks()[static_cast<size_t>(pair.first)],
                                 group.ranks()[static_cast<size_t>(pair.second)]};
    direction.pair = std::make_unique<NcclCommunicator>(nccl, group, ranks,
                                                        key.second ? kSender : kReceiver, timeout);
    direction.pair->join(addresses.at(key), accelerator);
    direction.stream = accelerator.make_stream(Priority::high);
    direction.reached = accelerator.make_event();
  }
  return std::make_unique<NcclPosts>(std::move(directions), accelerator);
}

}  // namespace tessera
