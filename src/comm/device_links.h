#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "device/stream.h"
#include "tensor/dtype.h"

namespace tessera {

/// Memory of this rank's device whose bytes are sent to, or received from, another rank.
struct DeviceBuffer {
  int peer = 0;  ///< the position of the other rank in the group
  std::byte* memory = nullptr;
  int64_t bytes = 0;
};

/// Moves data between the devices of a group of ranks, by a library. A call puts the work into a
/// stream and returns. The ranks have compared the call before (see Communicator). All ranks make
/// the same calls in the same order, except exchanges in which they have no part. `name` is the
/// name of the call in error messages; its text must outlive the work. `root` is a position.
///
/// The calls may be captured in a graph. They throw Error if the library refuses a call.
class DeviceLinks {
 public:
  DeviceLinks() = default;
  virtual ~DeviceLinks() = default;
  DeviceLinks(const DeviceLinks&) = delete;
  DeviceLinks& operator=(const DeviceLinks&) = delete;

  /// Gathers `bytes` bytes of each rank in `to`, in rank order. `from` may be this rank's part of
  /// `to`.
  virtual void all_gather(std::string_view name, const std::byte* from, std::byte* to,
                          int64_t bytes, Stream& stream) = 0;
  virtual void broadcast(std::string_view name, int root, std::byte* memory, int64_t bytes,
                         Stream& stream) = 0;
  /// Sums `elements` elements of all ranks, in an order that the library chooses. All ranks get the
  /// same bits. `to` may be `from`. bf16 may be rounded at each addition.
  virtual void all_reduce(std::string_view name, DType dtype, const std::byte* from, std::byte* to,
                          int64_t elements, Stream& stream) = 0;
  /// Sums so many elements for each rank, likewise. `from` has the addends for all ranks, in rank
  /// order, and does not change. `to` gets the sums of this rank, and may be its part of `from`.
  virtual void reduce_scatter(std::string_view name, DType dtype, const std::byte* from,
                              std::byte* to, int64_t elements, Stream& stream) = 0;
  /// Sends and receives buffers: at most one for each direction and peer, none to this rank itself
  /// and none of 0 bytes. Memory that is sent and memory that is received do not overlap.
  virtual void exchange(std::string_view name, std::span<const DeviceBuffer> sends,
                        std::span<const DeviceBuffer> receives, Stream& stream) = 0;
};

/// Moves messages that ranks post between the devices of a group, by a library. A call puts work
/// into streams and returns. The ranks compare each message on the processor (see Communicator).
/// Two ranks post the messages of one direction in the same order. The order between directions and
/// peers is free, so a message waits only for earlier ones of its direction and peer.
///
/// The calls may be captured in a graph, both of a message in the same one. They throw Error if the
/// library refuses a call.
class DevicePosts {
 public:
  DevicePosts() = default;
  virtual ~DevicePosts() = default;
  DevicePosts(const DevicePosts&) = delete;
  DevicePosts& operator=(const DevicePosts&) = delete;

  /// A message that was put into streams. It may be destroyed before its work is done.
  class Post {
   public:
    virtual ~Post() = default;
  };

  /// Begins a message after the work that `stream` has so far. Work that `stream` gets later does
  /// not wait for it. The buffer is not of 0 bytes, and its peer is not this rank.
  virtual std::unique_ptr<Post> post(std::string_view name, const DeviceBuffer& buffer, bool sent,
                                     Stream& stream) = 0;
  /// Makes the work that `stream` gets from now on wait until the message has moved.
  virtual void wait(Post& post, Stream& stream) = 0;
};

}  // namespace tessera
