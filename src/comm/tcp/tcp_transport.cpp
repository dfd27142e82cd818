#include "comm/tcp/tcp_transport.h"

#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/call_errors.h"
#include "comm/tcp/tcp_call.h"
#include "comm/tcp/tcp_messages.h"
#include "comm/tcp/wire.h"

namespace tessera {
namespace {

using Operands = std::vector<std::span<const std::byte>>;
using Results = std::vector<std::span<std::byte>>;

std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.raw(), static_cast<size_t>(tensor.bytes())};
}

/// Sends each call as a request (CallRequest::call), and then the bytes of its operand.
class TcpTransport final : public Transport {
 public:
  TcpTransport(CallConnection& connection, const OtherProcess& process, int group,
               std::vector<int> ranks, std::string lane)
      : connection_(connection),
        process_(process),
        group_(group),
        ranks_(std::move(ranks)),
        lane_(std::move(lane)) {}
  ~TcpTransport() override { leave(); }

  void make(const TransportCall& call) override {
    WireWriter request(CallRequest::call, group_);
    put_call(request, process_.timeout(), call);
    make_call(call.mark, request, {bytes_of(call.from)}, {bytes_of(call.to)});
  }

  std::unique_ptr<TransportPost> post(const MarkedMessage& message, bool sent) override {
    const WireWriter request(CallRequest::post, group_, sent, message.mark, message.peer,
                             message.tensor.elements());
    const auto bytes = bytes_of(message.tensor);
    tell(message.mark, request, sent ? Operands{bytes} : Operands{});
    return std::make_unique<Post>(*this, posts_++, message, sent);
  }

  void wait(std::span<TransportPost* const> posts) override {
    if (posts.empty()) return;
    std::vector<int64_t> numbers;
    Results results;
    for (const TransportPost* const post : posts) {
      numbers.push_back(static_cast<const Post*>(post)->number());
      if (!post->sent()) results.push_back(bytes_of(post->tensor()));
    }
    const WireWriter request(CallRequest::wait, group_, process_.timeout(), numbers);
    make_call(posts.front()->mark(), request, {}, results);
    for (TransportPost* const post : posts) static_cast<Post*>(post)->end();
  }

  void throw_if_broken() override {
    if (failure_) throw Error("{}", *failure_);
    if (const auto failure = process_.failure(lane_)) throw Error("{}", *failure);
  }

 private:
  /// A message that the first rank's process has under a number. It has the bytes of a message that
  /// is sent; those of a message that is received come with the reply of the wait.
  class Post final : public TransportPost {
   public:
    Post(TcpTransport& transport, int64_t number, const MarkedMessage& message, bool sent)
        : TransportPost(message, sent), transport_(transport), number_(number) {}
    ~Post() override {
      if (!ended_) transport_.withdraw(*this, number_);
    }
    int64_t number() const { return number_; }
    void end() { ended_ = true; }

   private:
    TcpTransport& transport_;
    int64_t number_;
    bool ended_ = false;  // it has moved, and the first rank's process has forgotten it
  };

  /// Sends a request and its operands, and waits for its results.
  void make_call(const Fingerprint& mark, const WireWriter& request, const Operands& operands,
                 const Results& results) {
    keep_failure(mark, [&](const TcpSocket::Look& look) {
      count_received(connection_.request(group_, request, operands, results, look));
    });
  }

  /// Sends a request that has no reply, and its operands.
  void tell(const Fingerprint& mark, const WireWriter& request, const Operands& operands) {
    keep_failure(mark,
                 [&](const TcpSocket::Look& look) { connection_.tell(request, operands, look); });
  }

  /// Calls action(look). After an error, later calls throw the same.
  template <typename Action>
  void keep_failure(const Fingerprint& mark, Action&& action) {
    if (failure_) throw Error("{}", *failure_);
    try {
      action([&] { require_first_rank(mark); });
    } catch (const ConnectionLost& lost) {
      failure_ = fmt::format("{}: {}", mark.text(), process_.lost_text(lost.what()));
    } catch (const Error& error) {
      failure_ = error.what();
    }
    if (failure_) throw Error("{}", *failure_);
  }

  /// Throws Error if the first rank is silent, or lost.
  void require_first_rank(const Fingerprint& mark) const {
    try {
      process_.require_first_rank();
    } catch (const SilentFirstRank& silent) {
      throw Error("{}", timeout_text(mark.text(), group_text(ranks_, lane_), process_.timeout(),
                                     std::array{process_.rank()}, std::array{0},
                                     std::array<std::string, 1>{silent.what()}));
    }
  }

  /// Withdraws a message, unless the group is broken: then the first rank does not move it any
  /// more.
  void withdraw(const TransportPost& post, int64_t number) noexcept {
    if (failure_) return;
    try {
      tell(post.mark(), WireWriter(CallRequest::withdraw, group_, number), {});
    } catch (const Error&) {  // the connection is lost, of which later calls tell
    }
  }

  /// Leaves the group, so that the first rank's process keeps nothing for it.
  void leave() noexcept {
    try {
      connection_.tell(WireWriter(CallRequest::leave, group_), {},
                       [this] { process_.require_first_rank(); });
    } catch (const Error&) {  // the connection is lost, and with it all groups
    }
  }

  CallConnection& connection_;
  const OtherProcess& process_;
  int group_;
  std::vector<int> ranks_;
  std::string lane_;
  int64_t posts_ = 0;  // the number of messages that were posted
  std::optional<std::string> failure_;
};

}  // namespace

std::unique_ptr<Transport> tcp_transport(CallConnection& connection, const OtherProcess& process,
                                         int group, std::vector<int> ranks, std::string lane) {
  return std::make_unique<TcpTransport>(connection, process, group, std::move(ranks),
                                        std::move(lane));
}

}  // namespace tessera
