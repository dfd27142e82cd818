#include "comm/communicator.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/words.h"
#include "comm/reduce.h"

// A call checks its operands (a violation throws InternalError before any rank is asked), makes its
// fingerprint, and calls the transport. If devices move the bytes, the transport only compares the
// fingerprints (a barrier, or messages without bytes), and the DeviceTransport does the work. The
// comparison is the only reason to meet: a transport that compares no calls is not asked to. Posted
// messages are an exception, because the wait for one promises that the other rank has posted it.

namespace tessera {
namespace {

const std::byte* begin_of(const Tensor& tensor) {
  return static_cast<const std::byte*>(tensor.address());
}

/// Returns whether a tensor starts at element `element` of the tensor `whole`.
bool starts_at(const Tensor& tensor, const Tensor& whole, int64_t element) {
  return begin_of(tensor) == begin_of(whole) + element * dtype_size(whole.dtype());
}

bool overlap(const Tensor& a, const Tensor& b) {
  if (a.bytes() == 0 || b.bytes() == 0) return false;
  const std::less<> before;  // unlike <, it is defined for addresses in different memory
  return before(begin_of(a), begin_of(b) + b.bytes()) &&
         before(begin_of(b), begin_of(a) + a.bytes());
}

void check_no_overlap(std::string_view name, const Tensor& from, const Tensor& to) {
  TESSERA_CHECK(!overlap(from, to), "the operands of '{}' overlap", name);
}

void check_same_type(std::string_view name, const Tensor& from, const Tensor& to) {
  TESSERA_CHECK(from.dtype() == to.dtype(), "'{}' has operands of {} and {}", name,
                dtype_name(from.dtype()), dtype_name(to.dtype()));
}

void check_reduction(std::string_view name, Reduction reduction, DType dtype) {
  TESSERA_CHECK(can_reduce(reduction, dtype), "'{}' takes the {} of {}", name, word(reduction),
                dtype_name(dtype));
}

/// Checks a piece and the whole. They may overlap only if the piece is its own part of the whole.
void check_pieces(std::string_view name, const PieceLayout& layout, int ranks, int position,
                  const Tensor& piece, const Tensor& whole) {
  check_same_type(name, piece, whole);
  TESSERA_CHECK(layout.ranks() == ranks, "'{}' has pieces of {} ranks in a group of {}", name,
                layout.ranks(), ranks);
  TESSERA_CHECK(
      whole.elements() == layout.elements() && piece.elements() == layout.elements(position),
      "'{}' has a piece {} and a whole {}; they must be of {} and {} elements", name,
      piece.shape().text(), whole.shape().text(), layout.elements(position), layout.elements());
  if (!overlap(piece, whole)) return;
  TESSERA_CHECK(
      layout.is_contiguous(position) && starts_at(piece, whole, layout.piece_begin(position)),
      "the piece of '{}' overlaps the whole, but is not in its place", name);
}

/// Returns the shape of one row. Checks that the tensor has at least as many rows as are counted.
Shape row_shape(std::string_view name, const Tensor& tensor, std::span<const int64_t> counts,
                int ranks) {
  TESSERA_CHECK(static_cast<int>(counts.size()) == ranks && tensor.shape().rank() > 0,
                "'{}' has {} numbers of rows in a group of {}", name, counts.size(), ranks);
  int64_t rows = 0;
  for (const int64_t count : counts) {
    TESSERA_CHECK(count >= 0, "'{}' has a block of {} rows", name, count);
    rows += count;
  }
  TESSERA_CHECK(rows <= tensor.shape()[0], "'{}' has blocks of {} rows in a tensor {}", name, rows,
                tensor.shape().text());
  return tensor.shape().with_dim(0, 1);
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Transport> transport, std::vector<int> ranks,
                           int position)
    : transport_(std::move(transport)),
      ranks_(std::move(ranks)),
      position_(position),
      one_row_each_(ranks_.size(), 1),
      messages_to_(ranks_.size()),
      messages_from_(ranks_.size()) {
  TESSERA_CHECK(position >= 0 && position < size(), "position {} in a group of {}", position,
                size());
}

/// Begins a call: returns its fingerprint, which the ranks compare, with the next number.
Fingerprint Communicator::begin_call(Fingerprint mark) {
  require_listed(mark);
  mark.sequence = sequence_++;
  return mark;
}

void Communicator::expect_calls(std::optional<std::vector<uint64_t>> hashes) {
  listed_ = std::move(hashes);
  transport_->compare_calls(!listed_);
}

/// Throws InternalError if there is a list of calls without this one.
void Communicator::require_listed(const Fingerprint& mark) const {
  TESSERA_CHECK(!listed_ || std::ranges::binary_search(*listed_, mark.hash()),
                "{} is not in the list of calls on which the ranks {} have agreed", mark.text(),
                fmt::join(ranks_, ", "));
}

/// Ends a call: counts what the transports have received since the last one.
void Communicator::end_call(Collective collective) {
  Traffic& traffic = traffic_[static_cast<size_t>(collective)];
  const int64_t received = transport_->received_bytes() +
                           (device_ ? device_->received_bytes() : 0) + posts_received_bytes_;
  ++traffic.calls;
  traffic.received_bytes += received - counted_bytes_;
  counted_bytes_ = received;
}

void Communicator::use_devices(std::unique_ptr<DeviceLinks> links, int64_t staging_bytes) {
  staging_bytes_ = staging_bytes;
  device_ = std::make_unique<DeviceTransport>(std::move(links), size(), position_, staging_bytes);
}

void Communicator::require_devices(std::string_view name) const {
  TESSERA_CHECK(device_ != nullptr, "'{}' has operands of a device, which the group does not have",
                name);
}

DeviceTransport& Communicator::begin_on_device(const Fingerprint& mark, const DeviceCall& call,
                                               int64_t workspace_bytes) {
  require_devices(mark.name);
  TESSERA_CHECK(std::ssize(call.workspace) >= workspace_bytes,
                "'{}' has a workspace of {} bytes; it needs {}", mark.name, call.workspace.size(),
                workspace_bytes);
  if (transport_->compares_calls()) {
    transport_->make({.mark = mark});
  } else {
    transport_->throw_if_broken();
  }
  return *device_;
}

void Communicator::all_gather(std::string_view name, const PieceLayout& layout, const Tensor& from,
                              const Tensor& to, const DeviceCall& device) {
  check_pieces(name, layout, size(), position_, from, to);
  const Fingerprint mark =
      begin_call(pieces_mark(name, Collective::all_gather, to.dtype(), to.shape(), layout));
  if (device.stream == nullptr) {
    transport_->make({mark, Collective::all_gather, &layout, from, to});
  } else {
    begin_on_device(mark, device, all_gather_workspace(layout, to.dtype(), staging_bytes_))
        .all_gather(name, layout, from, to, device);
  }
  end_call(Collective::all_gather);
}

void Communicator::reduce_scatter(std::string_view name, const PieceLayout& layout,
                                  const Tensor& from, const Tensor& to, Reduction reduction,
                                  const DeviceCall& device) {
  TESSERA_CHECK(reduction != Reduction::maximum, "'{}' scatters a maximum", name);
  check_reduction(name, reduction, from.dtype());
  check_pieces(name, layout, size(), position_, to, from);
  const Fingerprint mark = begin_call(
      pieces_mark(name, Collective::reduce_scatter, from.dtype(), from.shape(), layout, reduction));
  if (device.stream == nullptr) {
    transport_->make({mark, Collective::reduce_scatter, &layout, from, to});
  } else {
    begin_on_device(mark, device,
                    reduce_scatter_workspace(layout, to.dtype(), reduction, staging_bytes_))
        .reduce_scatter(name, reduction, layout, from, to, device);
  }
  end_call(Collective::reduce_scatter);
}

void Communicator::all_reduce(std::string_view name, const Tensor& from, const Tensor& to,
                              Reduction reduction, const DeviceCall& device) {
  check_reduction(name, reduction, from.dtype());
  check_same_type(name, from, to);
  TESSERA_CHECK(from.elements() == to.elements(), "'{}' reduces {} to {}", name,
                from.shape().text(), to.shape().text());
  if (!starts_at(from, to, 0)) check_no_overlap(name, from, to);
  const Fingerprint mark = begin_call(all_reduce_mark(name, from.dtype(), from.shape(), reduction));
  if (device.stream == nullptr) {
    transport_->make({mark, Collective::all_reduce, nullptr, from, to});
  } else {
    begin_on_device(
        mark, device,
        all_reduce_workspace(to.elements(), to.dtype(), size(), reduction, staging_bytes_))
        .all_reduce(name, reduction, from, to, device);
  }
  end_call(Collective::all_reduce);
}

void Communicator::all_to_all(std::string_view name, const Tensor& from, const Tensor& to,
                              const std::optional<Repartition>& repartition) {
  check_same_type(name, from, to);
  check_no_overlap(name, from, to);
  TESSERA_CHECK(from.elements() == to.elements() && from.elements() % size() == 0,
                "'{}' has operands {} and {} in a group of {}", name, from.shape().text(),
                to.shape().text(), size());
  const Fingerprint mark = begin_call(
      all_to_all_mark(name, Collective::all_to_all, from.dtype(), from.shape(), repartition));
  transport_->make({.mark = mark,
                    .moves = Collective::all_to_all,
                    .from = from,
                    .to = to,
                    .sent = one_row_each_,
                    .received = one_row_each_,
                    .row_elements = to.elements() / size()});
  end_call(Collective::all_to_all);
}

void Communicator::all_to_all_rows(std::string_view name, const Tensor& from,
                                   std::span<const int64_t> sent, const Tensor& to,
                                   std::span<const int64_t> received,
                                   const std::optional<Repartition>& repartition) {
  check_same_type(name, from, to);
  check_no_overlap(name, from, to);
  const Shape row = row_shape(name, from, sent, size());
  TESSERA_CHECK(row == row_shape(name, to, received, size()), "'{}' has rows of {} and {}", name,
                from.shape().text(), to.shape().text());
  const Fingerprint mark = begin_call(
      all_to_all_mark(name, Collective::all_to_all_rows, from.dtype(), row, repartition));
  const auto rows_of = [](const Tensor& tensor, std::span<const int64_t> counts) {
    return tensor.slice(0, std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  };
  transport_->make({.mark = mark,
                    .moves = Collective::all_to_all_rows,
                    .from = rows_of(from, sent),
                    .to = rows_of(to, received),
                    .sent = sent,
                    .received = received,
                    .row_elements = row.elements()});
  end_call(Collective::all_to_all_rows);
}

void Communicator::broadcast(std::string_view name, int root, const Tensor& tensor,
                             const DeviceCall& device) {
  TESSERA_CHECK(root >= 0 && root < size(), "'{}' has the root {} in a group of {}", name, root,
                size());
  Fingerprint mark = call_mark(name, Collective::broadcast, tensor.dtype(), tensor.shape());
  mark.from = ranks_[static_cast<size_t>(root)];
  mark = begin_call(mark);
  if (device.stream == nullptr) {
    TransportCall call{.mark = mark, .moves = Collective::broadcast, .root = root};
    (root == position_ ? call.from : call.to) = tensor;
    transport_->make(call);
  } else {
    begin_on_device(mark, device, 0).broadcast(name, root, tensor, device);
  }
  end_call(Collective::broadcast);
}

MarkedMessage Communicator::mark_message(std::string_view name, const Message& message, bool sent) {
  TESSERA_CHECK(message.peer >= 0 && message.peer < size(), "'{}' has the peer {} in a group of {}",
                name, message.peer, size());
  const auto peer = static_cast<size_t>(message.peer);
  const int own_rank = ranks_[static_cast<size_t>(position_)];
  Fingerprint mark = message_mark(name, message.tensor.dtype(), message.tensor.shape(),
                                  sent ? own_rank : ranks_[peer], sent ? ranks_[peer] : own_rank);
  require_listed(mark);
  mark.sequence = sent ? messages_to_[peer]++ : messages_from_[peer]++;
  return {.mark = mark, .peer = message.peer, .tensor = message.tensor};
}

void Communicator::exchange(std::string_view name, std::span<const Message> sends,
                            std::span<const Message> receives, const DeviceCall& device) {
  const auto mark_all = [&](std::span<const Message> messages, bool sent) {
    std::vector<MarkedMessage> result;
    result.reserve(messages.size());
    for (const Message& message : messages) {
      TESSERA_CHECK(std::ranges::find(result, message.peer, &MarkedMessage::peer) == result.end(),
                    "'{}' has two messages of one direction and peer {}", name, message.peer);
      result.push_back(mark_message(name, message, sent));
    }
    return result;
  };
  for (const Message& send : sends) {
    for (const Message& receive : receives) check_no_overlap(name, send.tensor, receive.tensor);
  }
  std::vector<MarkedMessage> out = mark_all(sends, true);
  std::vector<MarkedMessage> in = mark_all(receives, false);
  if (device.stream == nullptr) {
    move_messages(out, in);
  } else {
    exchange_on_device(name, std::move(out), std::move(in), *device.stream);
  }
  end_call(Collective::message);
}

/// Posts messages, and waits for them.
void Communicator::move_messages(std::span<const MarkedMessage> sends,
                                 std::span<const MarkedMessage> receives) {
  std::vector<PostedMessage> posted;
  posted.reserve(sends.size() + receives.size());
  for (const MarkedMessage& message : receives) posted.push_back(post(message, false));
  for (const MarkedMessage& message : sends) posted.push_back(post(message, true));
  wait_for_all(posted);
}

/// Compares each message on the processor: exchanges messages without bytes there. Then moves the
/// bytes from device to device.
void Communicator::exchange_on_device(std::string_view name, std::vector<MarkedMessage> sends,
                                      std::vector<MarkedMessage> receives, Stream& stream) {
  require_devices(name);
  const auto take_buffers = [&](std::vector<MarkedMessage>& messages) {
    std::vector<DeviceBuffer> buffers;
    for (MarkedMessage& message : messages) buffers.push_back(take_buffer(message));
    return buffers;
  };
  std::vector<DeviceBuffer> out = take_buffers(sends);
  std::vector<DeviceBuffer> in = take_buffers(receives);
  if (transport_->compares_calls()) {
    move_messages(sends, receives);
  } else {
    transport_->throw_if_broken();
  }
  device_->exchange(name, std::move(out), std::move(in), stream);
}

void Communicator::send(std::string_view name, int peer, const Tensor& tensor) {
  const Message message{.peer = peer, .tensor = tensor};
  exchange(name, std::span(&message, 1), {});
}

void Communicator::receive(std::string_view name, int peer, const Tensor& tensor) {
  const Message message{.peer = peer, .tensor = tensor};
  exchange(name, {}, std::span(&message, 1));
}

DeviceBuffer Communicator::take_buffer(MarkedMessage& message) const {
  TESSERA_CHECK(message.peer != position_, "'{}' has a message of a device to itself",
                message.mark.name);
  const Tensor tensor = std::exchange(message.tensor, Tensor({0}, message.mark.dtype));
  return {message.peer, static_cast<std::byte*>(tensor.address()), tensor.bytes()};
}

PostedMessage Communicator::post_send(std::string_view name, int peer, const Tensor& tensor,
                                      const DeviceCall& device) {
  return post(mark_message(name, {.peer = peer, .tensor = tensor}, true), true, device);
}

PostedMessage Communicator::post_receive(std::string_view name, int peer, const Tensor& tensor,
                                         const DeviceCall& device) {
  return post(mark_message(name, {.peer = peer, .tensor = tensor}, false), false, device);
}

PostedMessage Communicator::post(MarkedMessage message, bool sent, const DeviceCall& device) {
  if (device.stream == nullptr) return post(message, sent);
  TESSERA_CHECK(device_posts_ != nullptr,
                "'{}' is a message of a device, which the group does not post", message.mark.name);
  const DeviceBuffer buffer = take_buffer(message);
  PostedMessage posted = post(message, sent);
  posted.on_device_ = true;
  posted.received_bytes_ = sent ? 0 : buffer.bytes;
  if (buffer.bytes > 0) {
    posted.device_post_ = device_posts_->post(message.mark.name, buffer, sent, *device.stream);
  }
  return posted;
}

PostedMessage Communicator::post(const MarkedMessage& message, bool sent) {
  return PostedMessage(transport_->post(message, sent));
}

void Communicator::wait(PostedMessage& message, const DeviceCall& device) {
  TESSERA_CHECK(message.on_device_ == (device.stream != nullptr),
                "a wait names a stream if the message is of a device, and only then");
  wait_for_all(std::span(&message, 1));
  if (message.device_post_) device_posts_->wait(*message.device_post_, *device.stream);
  posts_received_bytes_ += message.received_bytes_;
  message = {};
  end_call(Collective::message);
}

void Communicator::wait_for_all(std::span<const PostedMessage> messages) {
  std::vector<TransportPost*> posts;
  posts.reserve(messages.size());
  for (const PostedMessage& message : messages) {
    TESSERA_CHECK(message.is_posted(), "a wait for a message that is not posted");
    const TransportPost& post = *posts.emplace_back(message.post_.get());
    const auto peer = static_cast<size_t>(post.peer());
    const int64_t by_peer = (post.sent() ? messages_from_ : messages_to_)[peer];
    TESSERA_CHECK(post.peer() != position_ || post.mark().sequence < by_peer,
                  "'{}' waits for a message to its own rank, which has not posted the other side",
                  post.mark().name);
  }
  transport_->wait(posts);
}

void Communicator::barrier(std::string_view name) {
  const Fingerprint mark = begin_call(call_mark(name, Collective::barrier, DType::u8, {}));
  transport_->make({.mark = mark});
  end_call(Collective::barrier);
}

}  // namespace tessera
