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

/// The connection by which the groups of a rank ask the first one: see TcpAsked. Each group has a
/// number, and asks one thing at a time. Several threads may ask at once.
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

  /// Sends a letter of a group and what it gives, and waits for the answer and the result's bytes.
  /// Returns how many bytes the call has received from others. Throws Error with the text of the
  /// answer, and ConnectionLost. If `look` throws, so does this, and all questions later.
  int64_t ask(int group, const WireWriter& letter, Given given, Result result,
              const TcpSocket::Look& look);

 private:
  using Lock = std::unique_lock<std::mutex>;

  struct Question {
    Result result;
    bool sent = false;  // nobody reads what the call gives any more: the result may lie there
    bool answered = false;
    std::string error;
    int64_t received = 0;
  };

  void send(const WireWriter& letter, Given given, const TcpSocket::Look& look);
  void end_sending(Question& question);
  void await(const Question& question, const TcpSocket::Look& look);
  void give_up(int group, Question& question, std::optional<std::string> why);
  void throw_if_lost() const;
  void hear_answers();
  void hear_answer(WireReader& answer);

  TcpSocket socket_;
  std::mutex sending_;
  std::atomic<int> groups_ = 0;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::map<int, Question*> questions_;   // that wait for answers, by group
  std::optional<std::string> lost_;      // why there is no answer any more
  std::optional<std::string> given_up_;  // what a look has thrown
  std::jthread listener_;
};

}  // namespace tessera
