#include "comm/tcp/tcp_transport.h"

#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

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
  TcpTransport(CallConnection& connection, const OtherProcess& process, int group, int position,
               std::string lane)
      : connection_(connection),
        process_(process),
        group_(group),
        position_(position),
        lane_(std::move(lane)) {}

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
    return std::make_unique<TransportPost>(message, sent);
  }

  void wait(std::span<TransportPost* const> posts) override {
    std::vector<MarkedMessage> sends;
    std::vector<MarkedMessage> receives;
    for (const TransportPost* post : posts) {
      (post->sent() ? sends : receives).push_back({post->mark(), post->peer(), post->tensor()});
    }
    exchange(sends, receives);
  }

 private:
  void exchange(std::span<const MarkedMessage> sends, std::span<const MarkedMessage> receives) {
    if (sends.empty() && receives.empty()) return;
    Operands operands;
    Results results;
    for (const MarkedMessage& message : sends) operands.push_back(bytes_of(message.tensor));
    for (const MarkedMessage& message : receives) results.push_back(bytes_of(message.tensor));
    const Fingerprint& first = receives.empty() ? sends.front().mark : receives.front().mark;
    WireWriter request = begin(Collective::message);
    for (const auto& messages : {sends, receives}) {
      request.put<int64_t>(std::ssize(messages));
      for (const MarkedMessage& message : messages) {
        request.put_mark(message.mark);
        request.put(message.peer);
        request.put(message.tensor.elements());
      }
    }
    make_call(first, request, operands, results);
  }

 public:
  /// Waits for all ranks. If devices do the work of a call, the fingerprint is that of the call.
  void barrier(const Fingerprint& mark) override {
    WireWriter request = begin(Collective::barrier);
    request.put_mark(mark);
    make_call(mark, request, {}, {});
  }

  void throw_if_broken() override {
    if (failure_) throw Error("{}", *failure_);
    if (const auto failure = process_.failure(lane_)) throw Error("{}", *failure);
  }

 private:
  /// Makes a collective. `put_fields` writes the fields of its request after the fingerprint.
  void call(const Fingerprint& mark, const Operands& operands, const Results& results,
            const std::function<void(WireWriter&)>& put_fields = {}) {
    WireWriter request = begin(mark.collective);
    request.put_mark(mark);
    if (put_fields) put_fields(request);
    make_call(mark, request, operands, results);
  }

  /// Begins a request with the fields that all calls have. `moves` is the collective that moves the
  /// operands: a barrier if devices move them.
  WireWriter begin(Collective moves) {
    WireWriter request;
    request.put(CallRequest::call);
    request.put(group_);
    request.put<int64_t>(process_.timeout().count());
    request.put(moves);
    return request;
  }

  /// Sends a request and its operands, and waits for its results. After an error, later calls throw
  /// the same.
  void make_call(const Fingerprint& mark, const WireWriter& request, const Operands& operands,
                 const Results& results) {
    if (failure_) throw Error("{}", *failure_);
    try {
      count_received(connection_.request(group_, request, operands, results,
                                         [this] { process_.require_first_rank(); }));
    } catch (const ConnectionLost& lost) {
      failure_ = fmt::format("{}: {}", mark.text(), process_.lost_text(lost.what()));
    } catch (const Error& error) {
      failure_ = error.what();
    }
    if (failure_) throw Error("{}", *failure_);
  }

  CallConnection& connection_;
  const OtherProcess& process_;
  int group_;
  int position_;
  std::string lane_;
  std::optional<std::string> failure_;
};

}  // namespace

std::unique_ptr<Transport> tcp_transport(CallConnection& connection, const OtherProcess& process,
                                         int group, int position, std::string lane) {
  return std::make_unique<TcpTransport>(connection, process, group, position, std::move(lane));
}

}  // namespace tessera
