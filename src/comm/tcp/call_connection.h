#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "comm/tcp/tcp_socket.h"
#include "comm/tcp/wire.h"

namespace tessera {

/// The connection on which the groups of a rank send requests to the first rank (CallRequest). Each
/// group has a number, and waits for one reply at a time. Several threads may call request() and
/// tell() at once; a thread of this object receives the replies.
class CallConnection {
 public:
  explicit CallConnection(TcpSocket socket);
  CallConnection(const CallConnection&) = delete;
  CallConnection& operator=(const CallConnection&) = delete;
  ~CallConnection();

  using ConstBuffers = std::span<const std::span<const std::byte>>;
  using Buffers = std::span<const std::span<std::byte>>;

  /// Returns a number for a new group.
  int next_group() { return groups_++; }

  /// Sends a request of a group, and then the bytes of `operands`. Waits for the reply, and
  /// receives the bytes that follow the reply into `result`, which may be the same memory as
  /// `operands`. Returns how many bytes the call has received from other ranks.
  ///
  /// Throws Error if the reply has the text of an error, and ConnectionLost if the connection is
  /// lost. Calls `look` during waits. If it throws, all waiting and later requests throw the same.
  int64_t request(int group, const WireWriter& message, ConstBuffers operands, Buffers result,
                  const TcpSocket::Look& look);
  /// Sends a request that has no reply, and then the bytes of `operands`. Throws as request() does.
  void tell(const WireWriter& message, ConstBuffers operands, const TcpSocket::Look& look);

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// A request that waits for its reply.
  struct Pending {
    Buffers result;
    bool sent = false;  // the operands are sent: the result may overwrite them
    bool answered = false;
    std::string error;           // of the reply; empty if the call succeeded
    int64_t received_bytes = 0;  // by the call, from other ranks
  };

  void end_sending(Pending& pending);
  void await_reply(const Pending& pending, const TcpSocket::Look& look);
  void send(const WireWriter& message, ConstBuffers operands, const TcpSocket::Look& look);
  void give_up(const std::exception& error);
  void throw_if_lost() const;
  void receive_replies();
  void receive_reply(WireReader& reply);

  TcpSocket socket_;
  std::mutex sending_;           // held while a request is sent
  std::atomic<int> groups_ = 0;  // the number of groups
  std::mutex mutex_;             // guards what follows, and each Pending
  std::condition_variable changed_;
  std::map<int, Pending*> pending_;      // by group
  std::optional<std::string> lost_;      // why no more replies come; the receiver has ended
  std::optional<std::string> given_up_;  // the error that a `look` has thrown
  std::jthread receiver_;
};

}  // namespace tessera
