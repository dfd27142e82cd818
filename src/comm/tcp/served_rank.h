#pragma once

#include <map>
#include <memory>

#include "comm/in_process/world.h"
#include "comm/tcp/served_group.h"
#include "comm/tcp/tcp_socket.h"
#include "comm/tcp/wire.h"

namespace tessera {

/// Reads the requests of a rank of another process to the first one (TcpAsked), and passes them to
/// its groups.
class ServedRank {
 public:
  /// Refers to the connection and the world, of which `rank` is one.
  ServedRank(TcpSocket& socket, World& world, int rank)
      : answers_(socket), world_(world), rank_(rank) {}

  /// Serves until the connection is lost, and then throws ConnectionLost. Throws BadMessage if
  /// something comes that no rank of this version requests.
  void serve();

 private:
  void open_group(WireReader& request);

  AnswerSocket answers_;
  World& world_;
  int rank_;
  std::map<int, std::unique_ptr<ServedGroup>> groups_;  // by number
};

}  // namespace tessera
