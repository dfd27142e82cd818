#include "comm/tcp/call_connection.h"

#include <chrono>
#include <utility>

#include "base/error.h"
#include "comm/tcp/tcp_messages.h"

namespace tessera {
namespace {

/// The time between two calls of `look` while a request waits for its reply.
constexpr std::chrono::milliseconds kReplyLook{250};

}  // namespace

CallConnection::CallConnection(TcpSocket socket)
    : socket_(std::move(socket)), receiver_([this] { receive_replies(); }) {}

CallConnection::~CallConnection() {
  socket_.shut_down();
  receiver_.join();
}

int64_t CallConnection::request(int group, const WireWriter& message, ConstBuffers operands,
                                Buffers result, const TcpSocket::Look& look) {
  Pending pending{.result = result};
  {
    const Lock lock(mutex_);
    throw_if_lost();
    TESSERA_CHECK(pending_.emplace(group, &pending).second, "group {} asks twice", group);
  }
  try {
    send(message, operands, look);
    end_sending(pending);
    await_reply(pending, look);
  } catch (const std::exception& error) {
    end_sending(pending);
    give_up(error);
    const Lock lock(mutex_);
    pending_.erase(group);
    throw;
  }
  if (!pending.error.empty()) throw Error("{}", pending.error);
  return pending.received_bytes;
}

void CallConnection::tell(const WireWriter& message, ConstBuffers operands,
                          const TcpSocket::Look& look) {
  {
    const Lock lock(mutex_);
    throw_if_lost();
  }
  try {
    send(message, operands, look);
  } catch (const std::exception& error) {
    give_up(error);
    throw;
  }
}

void CallConnection::send(const WireWriter& message, ConstBuffers operands,
                          const TcpSocket::Look& look) {
  const Lock lock(sending_);
  send_message(socket_, message, look);
  for (const auto& buffer : operands) socket_.send(buffer, look);
}

/// Notes that the operands are sent, so that the receiver may write the result: in a collective in
/// place, both are in the same memory.
void CallConnection::end_sending(Pending& pending) {
  {
    const Lock lock(mutex_);
    pending.sent = true;
  }
  changed_.notify_all();
}

void CallConnection::await_reply(const Pending& pending, const TcpSocket::Look& look) {
  Lock lock(mutex_);
  while (!pending.answered) {
    throw_if_lost();
    changed_.wait_for(lock, kReplyLook);
    lock.unlock();
    look();
    lock.lock();
  }
}

/// Gives up after a request has failed by this error. Shuts the connection down, because only half
/// of a message may have been sent. Then waits until the receiver has ended: it does not write to
/// the results of requests then.
void CallConnection::give_up(const std::exception& error) {
  const bool is_lost = dynamic_cast<const ConnectionLost*>(&error) != nullptr;
  Lock lock(mutex_);
  if (!is_lost && !given_up_) given_up_ = error.what();
  socket_.shut_down();
  changed_.wait(lock, [&] { return lost_.has_value(); });
}

void CallConnection::throw_if_lost() const {
  if (given_up_) throw Error("{}", *given_up_);
  if (lost_) throw ConnectionLost("{}", *lost_);
}

/// Receives all replies, on the thread of this object, until the connection is lost.
void CallConnection::receive_replies() {
  std::string why;
  try {
    std::vector<std::byte> memory;
    for (;;) {
      WireReader reply = receive_message(socket_, memory);
      receive_reply(reply);
    }
  } catch (const std::exception& error) {
    why = error.what();
  }
  {
    const Lock lock(mutex_);
    lost_ = std::move(why);
  }
  changed_.notify_all();
}

/// Receives the rest of one reply, and the result. Wakes the request that waits for it.
void CallConnection::receive_reply(WireReader& reply) {
  int group = 0;
  std::string error;
  int64_t received_bytes = 0;
  reply.take_last_into(group, error, received_bytes);
  Pending* pending = nullptr;
  {
    Lock lock(mutex_);
    const auto found = pending_.find(group);
    if (found == pending_.end()) throw BadMessage("an answer that nobody waits for");
    pending = found->second;
    if (error.empty()) changed_.wait(lock, [&] { return pending->sent; });
  }
  // Receives without the lock, so that other groups can send requests meanwhile. `pending` stays
  // valid: give_up() waits for the end of this thread before the request is destroyed.
  if (error.empty()) {
    for (const auto& buffer : pending->result) socket_.receive(buffer);
  }
  {
    const Lock lock(mutex_);
    pending->error = std::move(error);
    pending->received_bytes = received_bytes;
    pending->answered = true;
    pending_.erase(group);
  }
  changed_.notify_all();
}

}  // namespace tessera
