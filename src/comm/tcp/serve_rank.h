#pragma once

#include <exception>
#include <functional>

#include "comm/in_process/world.h"
#include "comm/tcp/tcp_socket.h"

namespace tessera {

/// Makes the calls that a rank of another process requests (CallRequest), in the first rank's
/// process, and sends the results back. Each group of the rank has a thread here, which makes the
/// calls in a group of `world` on behalf of the rank.
///
/// Serves until the connection is lost, or a message comes that no rank of this version sends. Then
/// calls `on_end(error)`, with ConnectionLost or BadMessage, and waits for the calls that are still
/// being made. So `on_end` must end them, by World::fail().
void serve_rank(TcpSocket& socket, World& world, int rank,
                const std::function<void(const std::exception& error)>& on_end);

}  // namespace tessera
