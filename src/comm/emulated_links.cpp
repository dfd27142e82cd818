#include "comm/emulated_links.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace tessera {
namespace {

Tensor elements_at(std::byte* memory, int64_t elements, DType dtype) {
  return Tensor::wrap(memory, {elements}, dtype);
}

/// Returns memory that the communicator only reads. A Tensor cannot refer to const memory.
Tensor elements_at(const std::byte* memory, int64_t elements, DType dtype) {
  return elements_at(const_cast<std::byte*>(memory), elements, dtype);
}

Tensor bytes_at(std::byte* memory, int64_t bytes) { return elements_at(memory, bytes, DType::u8); }

class EmulatedLinks final : public DeviceLinks {
 public:
  explicit EmulatedLinks(Communicator group)
      : group_(std::make_shared<Communicator>(std::move(group))) {}

  void all_gather(std::string_view name, const std::byte* from, std::byte* to, int64_t bytes,
                  Stream& stream) override {
    stream.enqueue([=, group = group_] {
      group->all_gather(name, even_pieces(bytes * group->size(), group->size()),
                        elements_at(from, bytes, DType::u8), bytes_at(to, bytes * group->size()));
    });
  }

  void all_reduce(std::string_view name, DType dtype, const std::byte* from, std::byte* to,
                  int64_t elements, Stream& stream) override {
    stream.enqueue([=, group = group_] {
      group->all_reduce(name, elements_at(from, elements, dtype), elements_at(to, elements, dtype));
    });
  }

  void reduce_scatter(std::string_view name, DType dtype, const std::byte* from, std::byte* to,
                      int64_t elements, Stream& stream) override {
    stream.enqueue([=, group = group_] {
      const int64_t all = elements * group->size();
      group->reduce_scatter(name, even_pieces(all, group->size()), elements_at(from, all, dtype),
                            elements_at(to, elements, dtype));
    });
  }

  void broadcast(std::string_view name, int root, std::byte* memory, int64_t bytes,
                 Stream& stream) override {
    stream.enqueue([=, group = group_] { group->broadcast(name, root, bytes_at(memory, bytes)); });
  }

  void exchange(std::string_view name, std::span<const DeviceBuffer> sends,
                std::span<const DeviceBuffer> receives, Stream& stream) override {
    stream.enqueue([name, group = group_, out = messages(sends), in = messages(receives)] {
      group->exchange(name, out, in);
    });
  }

 private:
  static std::vector<Message> messages(std::span<const DeviceBuffer> buffers) {
    std::vector<Message> result;
    for (const DeviceBuffer& buffer : buffers) {
      result.push_back({.peer = buffer.peer, .tensor = bytes_at(buffer.memory, buffer.bytes)});
    }
    return result;
  }

  std::shared_ptr<Communicator> group_;  // shared with work that is still in a stream
};

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

std::unique_ptr<DeviceLinks> emulated_links(Communicator group) {
  return std::make_unique<EmulatedLinks>(std::move(group));
}

std::unique_ptr<DevicePosts> emulated_posts(Communicator group) {
  return std::make_unique<EmulatedPosts>(std::move(group));
}

}  // namespace tessera
