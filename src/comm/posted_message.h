#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "comm/device_links.h"
#include "comm/transport.h"

namespace tessera {

/// A message that was posted and not yet awaited: Communicator::post_send() and post_receive() make
/// it, Communicator::wait() ends it. It can be moved. It must be awaited or destroyed before its
/// communicator is destroyed, by the thread that makes the communicator's calls.
///
/// If it is destroyed before wait(), the message is withdrawn, unless it has moved by then. No rank
/// reads or writes its tensor's memory afterwards. The other rank then cannot end its wait for the
/// message, and throws Error that names the rank which withdrew it. A rank that has withdrawn a
/// message makes no more calls in the group. Memory of a device may be used until the streams that
/// the calls named have done their work.
class PostedMessage {
 public:
  PostedMessage() = default;

  /// Returns whether this is a message that was not awaited yet.
  bool is_posted() const { return post_ != nullptr; }

 private:
  friend class Communicator;
  explicit PostedMessage(std::unique_ptr<TransportPost> post) : post_(std::move(post)) {}

  std::unique_ptr<TransportPost> post_;
  // If devices move the bytes:
  bool on_device_ = false;
  std::unique_ptr<DevicePosts::Post> device_post_;  // null if there are no bytes
  int64_t received_bytes_ = 0;
};

}  // namespace tessera
