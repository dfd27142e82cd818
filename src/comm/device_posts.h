#pragma once

#include <memory>
#include <string_view>

#include "comm/device_links.h"
#include "device/stream.h"

namespace tessera {

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
