#include "comm/tcp/tcp_transport.h"

#include <array>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/call_errors.h"
#include "comm/tcp/tcp_messages.h"
#include "comm/tcp/wire.h"

namespace tessera {
namespace {

using Operands = std::vector<std::span<const std::byte>>;
using Results = std::vector<std::span<std::byte>>;

std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.raw(), static_cast<size_t>(tensor.bytes())};
}

/// Sends each call as a request (CallRequest::call): its fingerprint, and the fields from which
/// read_call() computes the sizes of the operands.
class TcpTransport final : public Transport {
 public:
  TcpTransport(CallConnection& connection, const OtherProcess& process, int group,
               std::vector<int> ranks, int position, std::string lane)
      : connection_(connection),
        process_(process),
        group_(group),
        ranks_(std::move(ranks)),
        position_(position),
        lane_(std::move(lane)) {}
  ~TcpTransport() override { leave(); }

  void all_gather(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                  const Tensor& to) override {
    call(mark, {bytes_of(from)}, {bytes_of(to)},
         [&](WireWriter& request) { request.put_layout(layout); });
  }
  void reduce_scatter(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                      const Tensor& to) override {
    call(mark, {bytes_of(from)}, {bytes_of(to)},
         [&](WireWriter& request) { request.put_layout(layout); });
  }
  void all_reduce(const Fingerprint& mark, const Tensor& from, const Tensor& to) override {
    call(mark, {bytes_of(from)}, {bytes_of(to)});
  }
  void all_to_all(const Fingerprint& mark, const Tensor& from, const Tensor& to) override {
    call(mark, {bytes_of(from)}, {bytes_of(to)},
         [&](WireWriter& request) { request.put(from.elements()); });
  }

  void all_to_all_rows(const Fingerprint& mark, const Tensor& from, std::span<const int64_t> sent,
                       const Tensor& to, std::span<const int64_t> received_rows) override {
    const int64_t row_elements = to.shape().with_dim(0, 1).elements();
    const auto rows_of = [&](const Tensor& tensor, std::span<const int64_t> counts) {
      const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      return bytes_of(tensor).first(
          static_cast<size_t>(rows * row_elements * dtype_size(tensor.dtype())));
    };
    call(mark, {rows_of(from, sent)}, {rows_of(to, received_rows)}, [&](WireWriter& request) {
      request.put_all(sent);
      request.put_all(received_rows);
      request.put(row_elements);
    });
  }

  void broadcast(const Fingerprint& mark, int root, const Tensor& tensor) override {
    const auto put_root = [&](WireWriter& request) { request.put(root); };
    if (position_ == root) {
      call(mark, {bytes_of(tensor)}, {}, put_root);
    } else {
      call(mark, {}, {bytes_of(tensor)}, put_root);
    }
  }

  std::unique_ptr<TransportPost> post(const MarkedMessage& message, bool sent) override {
    WireWriter request = begin(CallRequest::post);
    request.put(sent);
    request.put_mark(message.mark);
    request.put(message.peer);
    request.put(message.tensor.elements());
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
    WireWriter request = begin(CallRequest::wait);
    request.put<int64_t>(process_.timeout().count());
    request.put_all(std::span<const int64_t>(numbers));
    make_call(posts.front()->mark(), request, {}, results);
    for (TransportPost* const post : posts) static_cast<Post*>(post)->end();
  }

  /// Waits for all ranks. If devices do the work of a call, the fingerprint is that of the call.
  void barrier(const Fingerprint& mark) override {
    WireWriter request = begin_call(Collective::barrier);
    request.put_mark(mark);
    make_call(mark, request, {}, {});
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

  /// Makes a collective. `put_fields` writes the fields of its request after the fingerprint.
  void call(const Fingerprint& mark, const Operands& operands, const Results& results,
            const std::function<void(WireWriter&)>& put_fields = {}) {
    WireWriter request = begin_call(mark.collective);
    request.put_mark(mark);
    if (put_fields) put_fields(request);
    make_call(mark, request, operands, results);
  }

  WireWriter begin(CallRequest kind) const {
    WireWriter request;
    request.put(kind);
    request.put(group_);
    return request;
  }

  /// Begins a request with the fields that all collectives have. `moves` is the collective that
  /// moves the operands: a barrier if devices move them.
  WireWriter begin_call(Collective moves) const {
    WireWriter request = begin(CallRequest::call);
    request.put<int64_t>(process_.timeout().count());
    request.put(moves);
    return request;
  }

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
      WireWriter request = begin(CallRequest::withdraw);
      request.put(number);
      tell(post.mark(), request, {});
    } catch (const Error&) {  // the connection is lost, of which later calls tell
    }
  }

  /// Leaves the group, so that the first rank's process keeps nothing for it.
  void leave() noexcept {
    try {
      connection_.tell(begin(CallRequest::leave), {}, [this] { process_.require_first_rank(); });
    } catch (const Error&) {  // the connection is lost, and with it all groups
    }
  }

  CallConnection& connection_;
  const OtherProcess& process_;
  int group_;
  std::vector<int> ranks_;
  int position_;
  std::string lane_;
  int64_t posts_ = 0;  // the number of messages that were posted
  std::optional<std::string> failure_;
};

}  // namespace

std::unique_ptr<Transport> tcp_transport(CallConnection& connection, const OtherProcess& process,
                                         int group, std::vector<int> ranks, int position,
                                         std::string lane) {
  return std::make_unique<TcpTransport>(connection, process, group, std::move(ranks), position,
                                        std::move(lane));
}

}  // namespace tessera
