#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/call_marks.h"
#include "comm/device_links.h"
#include "comm/device_transport.h"
#include "comm/fingerprint.h"
#include "comm/piece_layout.h"
#include "comm/posted_message.h"
#include "comm/transport.h"
#include "tensor/tensor.h"

namespace tessera {

/// The calls that a rank has made, and the bytes that it has received from the others of its group.
struct Traffic {
  int64_t calls = 0;
  int64_t received_bytes = 0;  ///< as the transport counts them
};

/// The collectives of one rank within one group of ranks. A communicator checks the operands, and
/// numbers and counts the calls. A Transport moves bytes in the processor's memory, and a
/// DeviceTransport moves bytes in the memory of devices.
///
/// The group is an ordered list of ranks. A *position* is an index in that list, a *rank* is a rank
/// of the world. All ranks of the group make the same collectives in the same order, each rank from
/// one thread at a time. `name` is the name of the program's node, for error messages. When a call
/// returns, its result is there and its operands may change; on devices, after the stream's work.
/// Only messages that are posted go on after their call, until they are awaited.
///
/// **Order of sums.** Each element of a sum is the value of the first rank of the group, to which
/// the second's is added, and so on. Sums of bf16 are taken in f32 and rounded once, at the end.
/// Other sums are taken in the type of the elements; sums of i32 wrap. So all ranks get the same
/// bits, on every run and over every transport. A maximum is NaN if one of the values is NaN.
/// Only an unordered sum on devices leaves the order to their library (DeviceTransport). Its bits
/// are equal on all ranks of the group, but may differ from run to run and from group to group.
///
/// **Operands** must fit each other in their numbers of elements, not in their shapes, unless a
/// call says otherwise. All ranks must give the whole the same shape. Operands do not overlap
/// unless a call allows it. A violation throws InternalError.
///
/// **Devices.** After use_devices(), operands may be in the memory of an accelerator. The call then
/// names a stream. The ranks compare the call at once, on the processor, and the stream does the
/// work later. A graph that has captured the work repeats it without another comparison. If the
/// transport compares no calls, the ranks do not meet on the processor.
///
/// **Lists.** Ranks that agree on the list of their calls before they make them (agree_on_calls())
/// need not compare each call. The communicator then refuses calls that are not in the list.
///
/// **Errors.** If the ranks do not make the same call, all of them throw Error that says which rank
/// called what. The same holds if one rank waits in a collective while another waits for a message
/// that the first has not posted. If a rank has ended, or does not come before the timeout, the
/// ranks that wait for it throw Error that names it. After such an error the rank's communicator is
/// broken: all later calls throw the same error at once. The results of a call that throws are
/// undefined.
class Communicator {
 public:
  /// Creates the communicator of the rank at `position` of the group `ranks`.
  Communicator(std::unique_ptr<Transport> transport, std::vector<int> ranks, int position);

  std::span<const int> ranks() const { return ranks_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int position() const { return position_; }

  /// Lets later calls take operands in the memory of devices, which `links` moves. `staging_bytes`
  /// is the same on all ranks (see DeviceTransport).
  void use_devices(std::unique_ptr<DeviceLinks> links, int64_t staging_bytes = kDeviceStagingBytes);

  /// Lets later posts be of messages in the memory of devices, which `posts` moves.
  void use_device_posts(std::unique_ptr<DevicePosts> posts) { device_posts_ = std::move(posts); }
  bool has_device_posts() const { return device_posts_ != nullptr; }

  /// Gathers the pieces of all ranks into the whole `to`. `from` is this rank's piece. If the piece
  /// is contiguous, `from` may be its part of `to`. The elements may have any type.
  void all_gather(std::string_view name, const PieceLayout& layout, const Tensor& from,
                  const Tensor& to, const DeviceCall& device = {});
  /// Sums the wholes `from` of all ranks; each rank gets its piece of the sum. If the piece is
  /// contiguous, `to` may be its part of `from`. The other elements of `from` do not change. This
  /// is the gradient of all_gather. `reduction` is a kind of sum.
  void reduce_scatter(std::string_view name, const PieceLayout& layout, const Tensor& from,
                      const Tensor& to, Reduction reduction = Reduction::sum,
                      const DeviceCall& device = {});
  /// Gives every rank the sum, or the maximum (f32 and f64). `to` may be `from`.
  void all_reduce(std::string_view name, const Tensor& from, const Tensor& to,
                  Reduction reduction = Reduction::sum, const DeviceCall& device = {});

  /// Sends block i of `from` to position i and receives block i of `to` from there. The blocks are
  /// size() equal parts of the tensors. If the call changes the division of a whole, `repartition`
  /// describes the change, and ranks that do not agree about it throw Error.
  void all_to_all(std::string_view name, const Tensor& from, const Tensor& to,
                  const std::optional<Repartition>& repartition = {});
  /// Sends `sent[i]` rows of `from` to position i, and receives `received[i]` rows of `to` from
  /// there. Rows are counted along dim 0; both tensors have equal extents in all other dims.
  /// Tensors may have more rows than are sent or received; those do not change. Ranks that do not
  /// agree about a number of rows throw Error. `repartition` is as in all_to_all().
  void all_to_all_rows(std::string_view name, const Tensor& from, std::span<const int64_t> sent,
                       const Tensor& to, std::span<const int64_t> received,
                       const std::optional<Repartition>& repartition = {});

  /// Gives every rank the elements of the rank at position `root`.
  void broadcast(std::string_view name, int root, const Tensor& tensor,
                 const DeviceCall& device = {});

  /// Sends and receives all of these messages, in no fixed order, so that ranks which send to each
  /// other do not deadlock. At most one message goes in each direction to each peer; on devices,
  /// none to this rank itself. Ranks without a message need not call.
  void exchange(std::string_view name, std::span<const Message> sends,
                std::span<const Message> receives, const DeviceCall& device = {});
  /// Sends or receives one message. send() returns when the other rank has it.
  void send(std::string_view name, int peer, const Tensor& tensor);
  void receive(std::string_view name, int peer, const Tensor& tensor);

  /// Posts a message to send or to receive, and returns without a wait for the other rank. Any
  /// number of messages may be under way, in both directions and with any peers. The messages from
  /// one rank to another match in the order in which each of the two makes its calls, whether it
  /// posts them or uses the calls above. The tensor's memory must stay as it is until wait() has
  /// returned. `name` may be freed before.
  ///
  /// On devices, the message moves after the work that the stream has so far. Later work of the
  /// stream does not wait for it. Such a message is not to this rank itself.
  PostedMessage post_send(std::string_view name, int peer, const Tensor& tensor,
                          const DeviceCall& device = {});
  PostedMessage post_receive(std::string_view name, int peer, const Tensor& tensor,
                             const DeviceCall& device = {});
  /// Waits until a posted message has moved, which needs that the other rank has posted it too, but
  /// not that it waits. Counts as the call. A message to this rank itself needs both of its posts
  /// before, or throws InternalError.
  ///
  /// On devices, the host waits only until the other rank has posted the message, and compares it.
  /// The work that the stream gets from now on waits until the message has moved.
  void wait(PostedMessage& message, const DeviceCall& device = {});

  void barrier(std::string_view name);

  /// Notes that the ranks have agreed on the list of their calls from now on: agree_on_calls().
  /// `hashes` are those of the list; another call throws InternalError. None ends that: any call
  /// may come, and the ranks compare each.
  void expect_calls(std::optional<std::vector<uint64_t>> hashes);
  /// Sets whether the ranks compare each call: see Transport::compare_calls().
  void compare_calls(bool each) { transport_->compare_calls(each); }

  /// Throws Error if no more calls can be made, because a call or the work of a rank failed.
  void throw_if_broken() { transport_->throw_if_broken(); }

  /// Returns what this rank has received by calls of one kind, as the transport counted it. Tests
  /// compare it with the bytes that operations state by a formula.
  const Traffic& traffic(Collective collective) const {
    return traffic_[static_cast<size_t>(collective)];
  }

 private:
  Fingerprint begin_call(Fingerprint mark);
  void require_listed(const Fingerprint& mark) const;
  void end_call(Collective collective);
  /// Compares the ranks' calls before devices do the work, if the transport compares calls. Returns
  /// the transport for the work. Throws InternalError if the workspace is too small.
  DeviceTransport& begin_on_device(const Fingerprint& mark, const DeviceCall& call,
                                   int64_t workspace_bytes);
  void exchange_on_device(std::string_view name, std::vector<MarkedMessage> sends,
                          std::vector<MarkedMessage> receives, Stream& stream);
  void require_devices(std::string_view name) const;
  /// Returns a message with its fingerprint, and counts the message.
  MarkedMessage mark_message(std::string_view name, const Message& message, bool sent);
  PostedMessage post(const MarkedMessage& message, bool sent);
  PostedMessage post(MarkedMessage message, bool sent, const DeviceCall& device);
  /// Takes the tensor of a message out of it, so that the transport only compares the message.
  DeviceBuffer take_buffer(MarkedMessage& message) const;
  void move_messages(std::span<const MarkedMessage> sends, std::span<const MarkedMessage> receives);
  void wait_for_all(std::span<const PostedMessage> messages);

  std::unique_ptr<Transport> transport_;
  std::vector<int> ranks_;
  int position_;
  int64_t sequence_ = 0;                         // the number of collectives that have begun
  std::optional<std::vector<uint64_t>> listed_;  // CallList::hashes(), after expect_calls()
  std::vector<int64_t> one_row_each_;            // rows of an all-to-all, for each position
  std::vector<int64_t> messages_to_;             // the number of messages sent to each position
  std::vector<int64_t> messages_from_;  // the number of messages received from each position
  std::array<Traffic, kWordsOf<Collective>.size()> traffic_{};
  int64_t counted_bytes_ = 0;  // the received bytes that are part of traffic_
  int64_t staging_bytes_ = kDeviceStagingBytes;
  // Null before use_devices(). Last, so that it is destroyed first: links may refer to the group.
  std::unique_ptr<DeviceTransport> device_;
  std::unique_ptr<DevicePosts> device_posts_;  // null before use_device_posts()
  int64_t posts_received_bytes_ = 0;           // by messages that devices moved
};

}  // namespace tessera
