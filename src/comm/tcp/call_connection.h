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

/// The connection by which the groups of a rank send requests to the first rank (see TcpAsked).
/// Each group has a number, and one request at a time. Several threads may ask at once.
class CallConnection {
 public:
  explicit CallConnection(TcpSocket socket);
  CallConnection(const CallConnection&) = delete;
  CallConnection& operator=(const CallConnection&) = delete;
  ~CallConnection();

  using Given = std::span<const std::span<const std::byte>>;
  using Result = std::span<const std::span<std::byte>>;

  /// Returns a number for a new group.
  int next_group() { return groups_++; }

  /// Sends a request of a group and the bytes that it gives, and waits for the reply and the
  /// result's bytes. Returns how many bytes the call has received from others. Throws Error with
  /// the text of the reply, and ConnectionLost. If `look` throws, so does this, and so do all later
  /// requests.
  int64_t ask(int group, const WireWriter& request, Given given, Result result,
              const TcpSocket::Look& look);

 private:
  using Lock = std::unique_lock<std::mutex>;

  struct Question {
    Result result;
    bool sent = false;  // the given bytes are sent: the result may overwrite them
    bool answered = false;
    std::string error;
    int64_t received = 0;
  };

  void send(const WireWriter& request, Given given, const TcpSocket::Look& look);
  void end_sending(Question& question);
  void await(const Question& question, const TcpSocket::Look& look);
  void give_up(int group, Question& question, std::optional<std::string> why);
  void throw_if_lost() const;
  void hear_answers();
  void hear_answer(WireReader& answer);

  TcpSocket socket_;
  std::mutex sending_;
  std::atomic<int> groups_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<int, Question*> questions_;   // that wait for replies, by group
  std::optional<std::string> lost_;      // why no more replies come
  std::optional<std::string> given_up_;  // the error that a look has thrown
  std::jthread listener_;
};

}  // namespace tessera
