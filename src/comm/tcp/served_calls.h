#pragma once

#include <functional>
#include <vector>

#include "comm/tcp/tcp_socket.h"
#include "comm/tcp/wire.h"
#include "comm/transport.h"
#include "tensor/tensor.h"

namespace tessera {

/// Makes the calls that a rank of another process asks for, by a transport of this one, and sends
/// what they give (see TcpTransport).
class ServedCalls {
 public:
  /// Of the rank at `position` of a group. `set_timeout` is told how long the rank's next call
  /// waits. Refers to the rest.
  ServedCalls(TcpSocket& socket, Transport& transport, int position,
              std::function<void(std::chrono::milliseconds)> set_timeout)
      : socket_(socket),
        transport_(transport),
        position_(position),
        set_timeout_(std::move(set_timeout)) {}

  /// Serves calls until the connection is lost: throws ConnectionLost.
  void serve();

 private:
  void serve_one();
  void make_room(int64_t given, int64_t result);
  void give_room_back();
  void run(Collective collective, WireReader& call);
  void exchange(WireReader& call);

  TcpSocket& socket_;
  Transport& transport_;
  int position_;
  std::function<void(std::chrono::milliseconds)> set_timeout_;
  // Of one call.
  std::vector<std::byte> letter_;
  std::vector<std::byte> given_;   // what the rank gives
  std::vector<std::byte> result_;  // what it gets
};

}  // namespace tessera
