#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "comm/device_transport.h"
#include "comm/fingerprint.h"
#include "comm/piece_layout.h"
#include "comm/transport.h"
#include "tensor/tensor.h"

namespace tessera {

/// What a rank has got from the others of its group.
struct Traffic {
  int64_t calls = 0;
  int64_t received_bytes = 0;  ///< as the transport moved them
};

/// What an all-to-all makes of the pieces of one whole: the pieces of another split.
struct Repartition {
  Shape whole;
  uint64_t before = 0;  ///< PieceLayout::fingerprint()
  uint64_t after = 0;
};

/// The collectives of one rank within one group of ranks.
///
/// The group is an ordered list of ranks. A *position* is a place in that list, a *rank* a rank of
/// the world. All ranks of the group make the same calls in the same order, each from one thread at
/// a time. `name` is the program's node, for messages. A call returns when its result is there and
/// its operands may change.
///
/// **Order of sums.** Each element of a sum is the value of the first rank of the group, to which
/// the second's is added, and so on. Sums are taken in f32 for bf16, with one rounding at the end,
/// and otherwise in the type of the elements; those of i32 wrap. So all ranks get the same bits, on
/// every run and over every transport. A maximum is not a number if one of the values is not.
///
/// **Operands** are tensors whose elements alone count, not their shapes, unless a call says
/// otherwise. They do not overlap but where a call allows it. Anything else throws InternalError.
///
/// **Devices.** Operands may lie in the memory of an accelerator, if use_devices() was called, and
/// the call says in which stream. The ranks then compare the call at once, on the processor, and
/// the work is done when the stream comes to it. Where the work is captured in a graph, it is
/// repeated without another comparison.
///
/// **Errors.** If the ranks do not make the same call, all of them throw Error that says which rank
/// called what. So they do if one waits in a call of all for another that waits for a message to or
/// from it. If ranks have ended, or do not come before the world's timeout, those that wait throw
/// Error that names them. After an error the communicator is broken: calls that wait and all later
/// ones throw the same error at once. The results of a call that throws are undefined.
class Communicator {
 public:
  /// `ranks` is the group, `position` the place of this rank in it.
  Communicator(std::unique_ptr<Transport> transport, std::vector<int> ranks, int position);

  std::span<const int> ranks() const { return ranks_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int position() const { return position_; }

  /// Lets calls take operands in the memory of devices from now on, which `links` moves. All ranks
  /// stage as much (see DeviceTransport).
  void use_devices(std::unique_ptr<DeviceLinks> links, int64_t staging_bytes = kDeviceStagingBytes);

  /// Puts the pieces of all ranks together. `from` is this rank's piece, and may be its place in
  /// `to` if the piece is one block there. Elements of any type.
  void all_gather(std::string_view name, const PieceLayout& layout, const Tensor& from,
                  const Tensor& to, const DeviceCall& device = {});
  /// Sums the wholes of all ranks; each rank gets its piece of the sum. `to` may be the place of
  /// this rank's piece in `from` if the piece is one block there. What is elsewhere in `from` stays
  /// as it is. The gradient of all_gather.
  void reduce_scatter(std::string_view name, const PieceLayout& layout, const Tensor& from,
                      const Tensor& to, const DeviceCall& device = {});
  /// Gives every rank the sum, or the maximum (f32 and f64). `to` may be `from`.
  void all_reduce(std::string_view name, const Tensor& from, const Tensor& to,
                  Reduction reduction = Reduction::sum, const DeviceCall& device = {});

  /// Sends block i of `from` to position i and receives block i of `to` from there. The blocks are
  /// size() equal parts of the tensors. If they are pieces of a whole, `what` says which, and ranks
  /// that do not agree about it throw Error.
  void all_to_all(std::string_view name, const Tensor& from, const Tensor& to,
                  const std::optional<Repartition>& what = {});
  /// The same with blocks of rows: `sent[i]` rows of `from` go to position i, and `received[i]`
  /// rows of `to` come from there. Rows are those of dim 0, and equal in all dims after it. Tensors
  /// may have more rows than are sent or received; the rest stays as it is. Ranks that do not agree
  /// about a number of rows throw Error.
  void all_to_all_rows(std::string_view name, const Tensor& from, std::span<const int64_t> sent,
                       const Tensor& to, std::span<const int64_t> received,
                       const std::optional<Repartition>& what = {});

  /// Gives every rank the elements of the rank at position `root`.
  void broadcast(std::string_view name, int root, const Tensor& tensor,
                 const DeviceCall& device = {});

  /// Sends all of these messages and receives all of those, in no order, so that ranks which send
  /// to each other do not wait for each other. At most one message a direction and peer, and among
  /// devices none to this rank itself. The other ranks of the group need not call.
  void exchange(std::string_view name, std::span<const Message> sends,
                std::span<const Message> receives, const DeviceCall& device = {});
  /// Sends one message, and returns when the other rank has it.
  void send(std::string_view name, int peer, const Tensor& tensor);
  /// Receives one message.
  void receive(std::string_view name, int peer, const Tensor& tensor);

  /// Waits for all ranks of the group.
  void barrier(std::string_view name);

  /// Throws Error if no more calls can be made, because one failed or the work of a rank did.
  void throw_if_broken() { transport_->throw_if_broken(); }

  /// What this rank has got by calls of one kind, as the transport counted it. No formula is
  /// involved: what operations say of their bytes is compared with this.
  const Traffic& traffic(Collective collective) const {
    return traffic_[static_cast<size_t>(collective)];
  }

 private:
  Fingerprint next(std::string_view name, Collective collective, const Tensor& whole);
  void count(Collective collective);
  /// Compares a call whose work a device does. Throws InternalError if its workspace is too small.
  DeviceTransport& begin_on_device(const Fingerprint& mark, const DeviceCall& call,
                                   int64_t workspace_bytes);
  void exchange_on_device(std::string_view name, std::vector<MarkedMessage> sends,
                          std::vector<MarkedMessage> receives, Stream& stream);
  void require_devices(std::string_view name) const;
  MarkedMessage marked(std::string_view name, const Message& message, bool sent);

  std::unique_ptr<Transport> transport_;
  std::vector<int> ranks_;
  int position_;
  int64_t sequence_ = 0;
  std::vector<int64_t> messages_to_;  // counted by the peer's position
  std::vector<int64_t> messages_from_;
  std::array<Traffic, kWords<Collective>.size()> traffic_{};
  int64_t counted_bytes_ = 0;  // of the transport's, those in traffic_
  int64_t staging_bytes_ = kDeviceStagingBytes;
  // Null if operands lie on the processor alone. Last, because links may refer to the rest.
  std::unique_ptr<DeviceTransport> device_;
};

}  // namespace tessera
