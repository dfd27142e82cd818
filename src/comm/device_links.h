#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "device/stream.h"

namespace tessera {

/// Memory of this rank's device that goes to the rank at a position of the group, or comes from it.
struct DevicePart {
  int peer = 0;
  std::byte* memory = nullptr;
  int64_t bytes = 0;
};

/// What a library moves between the devices of a group of ranks. A call puts the work into a stream
/// and returns; the ranks have agreed about it before (see Communicator). All ranks make the same
/// calls in the same order, but for exchanges of which they are no part. `name` is that of the
/// call, for messages, and outlives the work.
///
/// The calls may be captured in a graph. Throws Error if the library refuses a call.
class DeviceLinks {
 public:
  DeviceLinks() = default;
  virtual ~DeviceLinks() = default;
  DeviceLinks(const DeviceLinks&) = delete;
  DeviceLinks& operator=(const DeviceLinks&) = delete;

  /// Puts `bytes` bytes of each rank one after the other. `from` may be its place in `to`.
  virtual void all_gather(std::string_view name, const std::byte* from, std::byte* to,
                          int64_t bytes, Stream& stream) = 0;
  virtual void broadcast(std::string_view name, int root, std::byte* memory, int64_t bytes,
                         Stream& stream) = 0;
  /// Sends and receives parts, at most one a direction and peer, none of this rank itself and none
  /// of 0 bytes. What is sent and what is received lie apart.
  virtual void exchange(std::string_view name, std::span<const DevicePart> sends,
                        std::span<const DevicePart> receives, Stream& stream) = 0;
};

}  // namespace tessera
