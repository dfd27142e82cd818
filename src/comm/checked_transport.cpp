#include "comm/checked_transport.h"

#include <concepts>
#include <cstdint>
#include <numeric>
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

  void all_gather(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                  const Tensor& to) override {
    call(mark, [&] { moves_->all_gather(mark, layout, from, to); });
  }
  void reduce_scatter(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                      const Tensor& to) override {
    call(mark, [&] { moves_->reduce_scatter(mark, layout, from, to); });
  }
  void all_reduce(const Fingerprint& mark, const Tensor& from, const Tensor& to) override {
    call(mark, [&] { moves_->all_reduce(mark, from, to); });
  }
  void all_to_all(const Fingerprint& mark, const Tensor& from, const Tensor& to) override {
    call(mark, [&] { moves_->all_to_all(mark, from, to); });
  }
  void all_to_all_rows(const Fingerprint& mark, const Tensor& from, std::span<const int64_t> sent,
                       const Tensor& to, std::span<const int64_t> received) override {
    const auto compare = [&] {
      // Rows without bytes.
      const auto empty = [&](std::span<const int64_t> rows) {
        return Tensor({std::accumulate(rows.begin(), rows.end(), int64_t{0}), 0}, mark.dtype);
      };
      compares_->all_to_all_rows(mark, empty(sent), sent, empty(received), received);
    };
    call(compare, [&] { moves_->all_to_all_rows(mark, from, sent, to, received); });
  }
  void broadcast(const Fingerprint& mark, int root, const Tensor& tensor) override {
    call(mark, [&] { moves_->broadcast(mark, root, tensor); });
  }
  void barrier(const Fingerprint& mark) override {
    call(mark, [&] { moves_->barrier(mark); });
  }

  /// Posts the message and its comparison at once: the other rank may wait for it while this rank
  /// does something else.
  std::unique_ptr<TransportPost> post(const MarkedMessage& message, bool sent) override {
    auto post = std::make_unique<Post>(message, sent);
    if (compares_calls()) {
      throw_if_broken();
      const MarkedMessage empty{message.mark, message.peer, Tensor({0}, message.mark.dtype)};
      post->compared = compares_->post(empty, sent);
    }
    post->moved = moves_->post(message, sent);
    return post;
  }

  void wait(std::span<TransportPost* const> posts) override {
    std::vector<TransportPost*> compared, moved;
    for (TransportPost* const posted : posts) {
      const auto& post = static_cast<const Post&>(*posted);
      if (post.compared) compared.push_back(post.compared.get());
      moved.push_back(post.moved.get());
    }
    if (!compared.empty()) compares_->wait(compared);
    moves_->wait(moved);
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
  struct Post final : TransportPost {
    using TransportPost::TransportPost;

    std::unique_ptr<TransportPost> compared;  // null if the message is not compared
    std::unique_ptr<TransportPost> moved;
  };

  void count() { count_received(moves_->received_bytes() - received_bytes()); }

  template <typename Move>
  void call(const Fingerprint& mark, Move&& move) {
    call([&] { compares_->barrier(mark); }, move);
  }
  template <typename Compare, typename Move>
  requires std::invocable<Compare>
  void call(Compare&& compare, Move&& move) {
    if (compares_calls()) {
      throw_if_broken();  // a broken group does not come to a comparison
      compare();
    }
    move();
    count();
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
