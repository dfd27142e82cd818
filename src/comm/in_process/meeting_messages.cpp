#include <cstring>

#include <fmt/format.h>

#include "comm/in_process/meeting.h"

// A sender writes a pointer to its message into the channel to the receiver, and waits until the
// channel no longer has the pointer. The receiver waits for the pointer, copies the bytes from the
// sender's memory, and empties the channel. Each rank offers all its messages before it waits for
// any, so ranks that send to each other do not deadlock.

namespace tessera {

int64_t Meeting::exchange(size_t position, std::span<const MarkedMessage> sends,
                          std::span<const MarkedMessage> receives) {
  if (sends.empty() && receives.empty()) return 0;
  int64_t bytes = 0;
  Lock lock(mutex_);
  if (failure_) throw Error(*failure_);
  last_calls_[position].begin(receives.empty() ? sends.front().mark : receives.front().mark);
  for (const MarkedMessage& send : sends) {
    channel(position, static_cast<size_t>(send.peer)) = {Channel::State::offered, &send};
  }
  changed_.notify_all();
  Exchange& own = exchanges_[position];
  own = {sends, receives};
  try {
    for (const size_t other : arrived_) check_messages(other, position);
    // A message that is done is removed from `own`: check_messages() looks at the others.
    for (; !own.receives.empty(); own.receives = own.receives.subspan(1)) {
      const MarkedMessage& receive = own.receives.front();
      receive_message(lock, position, receive);
      if (static_cast<size_t>(receive.peer) != position) bytes += receive.tensor.bytes();
    }
    for (; !own.sends.empty(); own.sends = own.sends.subspan(1)) {
      const MarkedMessage& send = own.sends.front();
      const auto peer = static_cast<size_t>(send.peer);
      wait_for(
          lock, position, send.mark, [&] { return channel(position, peer).message != &send; },
          [&](size_t other) { return other == peer; });
    }
  } catch (...) {
    withdraw(lock, position, sends);
    own = {};
    last_calls_[position].fail();
    throw;
  }
  last_calls_[position].end();
  return bytes;
}

/// Breaks the group if one rank waits in a collective, while another rank waits for a message to or
/// from the first: neither wait would end.
void Meeting::check_messages(size_t in_collective, size_t in_exchange) {
  const auto fail_because_of = [&](const MarkedMessage& message) {
    fail_locked(fmt::format(
        "the ranks of {} do not make the same call: {} made {}; {} made {}. A rank must "
        "send and receive all its messages before it makes a call of all ranks",
        text(), about_.text(ranks_[in_collective]), calls_[in_collective].mark->text(),
        about_.text(ranks_[in_exchange]), message.mark.text()));
    throw Error(*failure_);
  };
  const Exchange& remaining = exchanges_[in_exchange];
  for (const MarkedMessage& receive : remaining.receives) {
    if (static_cast<size_t>(receive.peer) == in_collective) fail_because_of(receive);
  }
  for (const MarkedMessage& send : remaining.sends) {
    if (static_cast<size_t>(send.peer) != in_collective) continue;
    if (channel(in_exchange, in_collective).message == &send) fail_because_of(send);
  }
}

/// Waits for a message and copies its bytes, without the lock, so that other ranks need not wait.
void Meeting::receive_message(Lock& lock, size_t position, const MarkedMessage& message) {
  const auto peer = static_cast<size_t>(message.peer);
  Channel& incoming = channel(peer, position);
  wait_for(
      lock, position, message.mark, [&] { return incoming.state == Channel::State::offered; },
      [&](size_t other) { return other == peer; });
  if (incoming.message->mark != message.mark) {
    fail_locked(different_messages_text(text(), ranks_[peer], incoming.message->mark.text(),
                                        ranks_[position], message.mark.text()));
    throw Error(*failure_);
  }
  incoming.state = Channel::State::copying;
  const Tensor& source = incoming.message->tensor;
  lock.unlock();
  if (message.tensor.bytes() > 0) {
    std::memcpy(message.tensor.raw(), source.raw(), static_cast<size_t>(source.bytes()));
  }
  lock.lock();
  incoming = {};
  changed_.notify_all();
}

/// Withdraws the messages of a failed exchange, whose memory the caller then frees. Waits for ranks
/// that are copying such a message.
void Meeting::withdraw(Lock& lock, size_t position, std::span<const MarkedMessage> sends) {
  for (const MarkedMessage& send : sends) {
    Channel& outgoing = channel(position, static_cast<size_t>(send.peer));
    if (outgoing.message != &send) continue;
    if (outgoing.state == Channel::State::offered) {
      outgoing = {};
    } else {
      changed_.wait(lock, [&] { return outgoing.message != &send; });
    }
  }
}

}  // namespace tessera
