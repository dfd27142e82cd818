#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
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

/// The connection by which the groups of a rank send requests to the first rank (CallRequest) and
/// get the replies. Each group has a number, and one request at a time. Several threads may call
/// request() at once; a thread of this object receives the replies.
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

  /// Sends a request of a group and the bytes of `operands`. Waits for the reply, and receives the
  /// bytes that follow it into `result`, which may be the same memory as `operands`. Returns how
  /// many bytes the call has received from other ranks. Throws Error with the text of the reply,
  /// and ConnectionLost. If `look` throws, so does this, and so do all later requests.
  int64_t request(int group, const WireWriter& message, ConstBuffers operands, Buffers result,
                  const TcpSocket::Look& look);

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// A request that waits for its reply.
  struct Pending {
    Buffers result;
    bool sent = false;  // the operands are sent: the result may overwrite them
    bool answered = false;
    std::string error;
    int64_t received = 0;
  };

  void send(const WireWriter& message, ConstBuffers operands, const TcpSocket::Look& look);
  void end_sending(Pending& pending);
  void await_reply(const Pending& pending, const TcpSocket::Look& look);
  void give_up(int group, Pending& pending, std::optional<std::string> why);
  void throw_if_lost() const;
  void receive_replies();
  void receive_reply(WireReader& reply);

  TcpSocket socket_;
  std::mutex sending_;  // one request is sent at a time
  std::atomic<int> groups_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<int, Pending*> pending_;      // by group
  std::optional<std::string> lost_;      // why no more replies come
  std::optional<std::string> given_up_;  // the error that a look has thrown
  std::jthread receiver_;
};

}  // namespace tessera
