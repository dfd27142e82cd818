#include "comm/checked_transport.h"

#include <utility>
#include <vector>

namespace tessera {
namespace {

class CheckedTransport final : public Transport {
 public:
  CheckedTransport(std::unique_ptr<Transport> moves, std::unique_ptr<Transport> compares,
                   std::function<std::unique_ptr<Transport>()> join, const Processes& processes)
      : moves_(std::move(moves)),
        compares_(std::move(compares)),
        join_(std::move(join)),
        processes_(processes) {}

  void make(const TransportCall& call) override {
    if (compares_calls()) {
      throw_if_broken();  // a broken group does not come to a comparison
      compare(call);
    }
    moves_->make(call);
    count();
  }

  /// Posts the message and its comparison at once: the other rank may wait for it while this rank
  /// does something else.
  std::unique_ptr<TransportPost> post(const MarkedMessage& message, bool sent) override {
    if (!compares_calls()) return moves_->post(message, sent);
    throw_if_broken();
    auto post = std::make_unique<Post>(message, sent);
    const MarkedMessage empty{message.mark, message.peer, Tensor({0}, message.mark.dtype)};
    post->compared = compares_->post(empty, sent);
    post->moved = moves_->post(message, sent);
    return post;
  }

  void wait(std::span<TransportPost* const> posts) override {
    if (compares_calls()) {
      wait_and_compare(posts);
    } else {
      moves_->wait(posts);
    }
    count();
  }

  /// Messages that were compared have been awaited when this is called.
  void compare_calls(bool each) override {
    if (!each && !processes_.checks_calls()) compares_.reset();
    if (each && !compares_calls()) compares_ = join_();
  }
  bool compares_calls() const override { return compares_ != nullptr; }

  void throw_if_broken() override {
    moves_->throw_if_broken();
    if (compares_calls()) compares_->throw_if_broken();
  }

 private:
  /// A message that is compared.
  struct Post final : TransportPost {
    using TransportPost::TransportPost;

    std::unique_ptr<TransportPost> compared;
    std::unique_ptr<TransportPost> moved;
  };

  /// Waits for messages, some of which may have been posted before calls were compared.
  void wait_and_compare(std::span<TransportPost* const> posts) {
    std::vector<TransportPost*> compared, moved;
    for (TransportPost* const posted : posts) {
      const auto* const post = dynamic_cast<const Post*>(posted);
      if (post != nullptr) compared.push_back(post->compared.get());
      moved.push_back(post != nullptr ? post->moved.get() : posted);
    }
    if (!compared.empty()) compares_->wait(compared);
    moves_->wait(moved);
  }

  void count() { count_received(moves_->received_bytes() - received_bytes()); }

  /// Compares a call and its numbers of rows. Moves no bytes.
  void compare(const TransportCall& call) {
    if (call.moves != Collective::all_to_all_rows) return compares_->make({.mark = call.mark});
    const Tensor empty({0}, call.mark.dtype);
    compares_->make({.mark = call.mark,
                     .moves = call.moves,
                     .from = empty,
                     .to = empty,
                     .sent = call.sent,
                     .received = call.received});
  }

  std::unique_ptr<Transport> moves_;
  std::unique_ptr<Transport> compares_;  // null while calls are not compared
  std::function<std::unique_ptr<Transport>()> join_;
  const Processes& processes_;
};

}  // namespace

std::unique_ptr<Transport> checked_transport(std::unique_ptr<Transport> moves,
                                             std::unique_ptr<Transport> compares,
                                             std::function<std::unique_ptr<Transport>()> join,
                                             const Processes& processes) {
  return std::make_unique<CheckedTransport>(std::move(moves), std::move(compares), std::move(join),
                                            processes);
}

}  // namespace tessera
