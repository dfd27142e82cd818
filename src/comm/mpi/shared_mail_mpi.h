#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <mpi.h>

namespace tessera {

/// The memory in which the processes of a group on one machine compare messages (MpiMessages). Each
/// rank has a part of the memory, with a *box* for each other rank. The sender writes the number of
/// a message (a hash), and the bytes if they are few, to its box for the receiver. The receiver
/// writes its own number, the *answer*, to its box for the sender. Each then sets a counter in its
/// box to the count of messages so far, and polls the other rank's counter. The receiver may read
/// the bytes until it begins the next message. So messages use two slots in turn.
class SharedMail {
 public:
  /// Returns the mail of the ranks of `comm`, which are on one machine and all call it; null on all
  /// of them if the machine has no memory to share. The memory stays until the process ends.
  static std::unique_ptr<SharedMail> make(MPI_Comm comm);

  /// Returns the most bytes that go with a sender's number.
  int64_t max_bytes() const { return max_bytes_; }

  /// Begins a message to the rank at a position. Returns the memory for its bytes.
  std::byte* begin_send(int to) {
    ++sent_to_[static_cast<size_t>(to)];
    return message(position_, to, sent_to_[static_cast<size_t>(to)]) + kLine;
  }
  /// Sends the number and the bytes.
  void send(int to, uint64_t number) {
    const uint64_t count = sent_to_[static_cast<size_t>(to)];
    number_at(message(position_, to, count)) = number;
    counter_at(box(position_, to)).store(count, std::memory_order_release);
  }
  /// Begins a message from the rank at a position, with this rank's number.
  void begin_receive(int from, uint64_t number) {
    const uint64_t count = ++received_from_[static_cast<size_t>(from)];
    number_at(answer(position_, from, count)) = number;
    counter_at(answers(position_, from)).store(count, std::memory_order_release);
  }

  /// Returns whether the peer has come to the last message: the one to it if `sent`, else from it.
  bool has_come(int peer, bool sent) {
    const Counter& counter = counter_at(sent ? answers(peer, position_) : box(peer, position_));
    return counter.load(std::memory_order_acquire) >= count_of(peer, sent);
  }
  /// Returns the peer's number of that message, after has_come() has returned true.
  uint64_t number_of(int peer, bool sent) {
    const uint64_t count = count_of(peer, sent);
    return number_at(sent ? answer(peer, position_, count) : message(peer, position_, count));
  }
  /// Returns the bytes of the last message from a position.
  const std::byte* bytes_from(int from) {
    return message(from, position_, received_from_[static_cast<size_t>(from)]) + kLine;
  }

 private:
  static constexpr int64_t kLine = 64;  // bytes of a line of the cache
  using Counter = std::atomic<uint64_t>;
  static_assert(Counter::is_always_lock_free && sizeof(Counter) == sizeof(uint64_t));

  SharedMail(int size, int position);

  uint64_t count_of(int peer, bool sent) const {
    return (sent ? sent_to_ : received_from_)[static_cast<size_t>(peer)];
  }
  // A box has the messages to the other rank, and then the answers to its messages. Both begin with
  // a cache line that has a counter. Two slots follow.
  int64_t message_bytes() const { return kLine + max_bytes_; }
  int64_t peer_bytes() const { return kLine + 2 * message_bytes() + kLine + 2 * kLine; }
  std::byte* box(int from, int to) { return parts_[static_cast<size_t>(from)] + to * peer_bytes(); }
  std::byte* message(int from, int to, uint64_t count) {
    return box(from, to) + kLine + static_cast<int64_t>(count % 2) * message_bytes();
  }
  std::byte* answers(int from, int to) { return box(from, to) + kLine + 2 * message_bytes(); }
  std::byte* answer(int from, int to, uint64_t count) {
    return answers(from, to) + kLine + static_cast<int64_t>(count % 2) * kLine;
  }
  static Counter& counter_at(std::byte* line) { return *reinterpret_cast<Counter*>(line); }
  static uint64_t& number_at(std::byte* line) { return *reinterpret_cast<uint64_t*>(line); }

  std::vector<std::byte*> parts_;  // by position
  int position_;
  int64_t max_bytes_;
  std::vector<uint64_t> sent_to_;  // the number of messages, by position
  std::vector<uint64_t> received_from_;
};

}  // namespace tessera
