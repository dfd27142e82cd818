#include "comm/emulated_posts.h"

#include <algorithm>
#include <string>
#include <utility>

namespace tessera {
namespace {

class EmulatedPosts final : public DevicePosts {
 public:
  explicit EmulatedPosts(Communicator group)
      : group_(std::make_shared<Communicator>(std::move(group))) {}

  std::unique_ptr<Post> post(std::string_view name, const DeviceBuffer& buffer, bool sent,
                             Stream& stream) override {
    auto post = std::make_unique<EmulatedPost>(UnderWay{group_, buffer, sent});
    stream.enqueue([under_way = post->under_way, name = std::string(name)] {
      Communicator& group = *under_way->group;
      const DeviceBuffer& device = under_way->device;
      const Tensor host({device.bytes}, DType::u8);
      if (under_way->sent) std::copy_n(device.memory, device.bytes, host.raw());
      under_way->host = host;
      under_way->message = under_way->sent ? group.post_send(name, device.peer, host)
                                           : group.post_receive(name, device.peer, host);
    });
    return post;
  }

  void wait(Post& post, Stream& stream) override {
    stream.enqueue([under_way = static_cast<EmulatedPost&>(post).under_way] {
      under_way->group->wait(under_way->message);
      const DeviceBuffer& device = under_way->device;
      if (!under_way->sent) std::copy_n(under_way->host.raw(), device.bytes, device.memory);
    });
  }

 private:
  /// The message that the work of a post makes, and that of its wait ends: again in each repeat of
  /// a graph. Its bytes are on the host: only the device's own streams reach the device's memory.
  struct UnderWay {
    std::shared_ptr<Communicator> group;  // shared with work that is still in a stream
    DeviceBuffer device;
    bool sent;
    Tensor host{};
    PostedMessage message{};
  };
  struct EmulatedPost final : Post {
    explicit EmulatedPost(UnderWay&& message)
        : under_way(std::make_shared<UnderWay>(std::move(message))) {}
    std::shared_ptr<UnderWay> under_way;
  };

  std::shared_ptr<Communicator> group_;
};

}  // namespace

std::unique_ptr<DevicePosts> emulated_posts(Communicator group) {
  return std::make_unique<EmulatedPosts>(std::move(group));
}

}  // namespace tessera
